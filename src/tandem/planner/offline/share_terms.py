"""Terms of a plan's passes, from the prices that it was planned by."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from tandem.cost.block_pass import PassWork, longest_s
from tandem.plan.program import OpKind, Part, Queue
from tandem.plan.share_terms import ShareTerms, TermLine
from tandem.planner.demand import Demand
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.times import BlockTimes
from tandem.planner.offline.work import (
    CPU_CHAIN,
    CPU_MLP,
    ENDS,
    LOAD,
    LOAD_MLP,
    MLP_CHAIN,
    READ,
    OpClass,
    operation,
)
from tandem.planner.question import Question

_PRE = (OpKind.STAGE, Queue.ACCEL, Part.PRE)
_POST = (OpKind.STAGE, Queue.ACCEL, Part.POST)
_BACK = (OpKind.COPY, Queue.H2D, Part.RESIDUAL)
_OF_CPU = tuple(found for found in MLP_CHAIN if found != CPU_MLP)
"""Around an MLP that the CPU computes, on the accelerator and on the link."""
_MERGE = (OpKind.MERGE, Queue.ACCEL, Part.NONE)
_ATTENTION = (
    (OpKind.APPEND, Queue.ACCEL, Part.NONE),
    (OpKind.ATTEND, Queue.ACCEL, Part.NONE),
)
_CACHE = (OpKind.COPY, Queue.H2D, Part.CACHE)
_QUERIES, _HOST, _RESULTS = CPU_CHAIN[:1], CPU_CHAIN[1:3], CPU_CHAIN[3:]
_Value = Callable[[Demand], float]
_Kind = tuple[int, bool, bool]  # of layers: window, streamed, its MLP the CPU's


def share_terms(times: BlockTimes, candidate: BlockCandidate) -> ShareTerms:
    """Of a candidate of which nothing is recomputed.

    Terms are straight lines through prices at the lengths of prompts and of whole requests, in
    whole blocks: exact but for windows. Slack makes a pass at mean context as long as it is in
    virtual time.
    """
    question = times.question
    pricing = _Pricing(times, candidate)
    every, rows = candidate.host_rows, candidate.rows
    cpu = _only(candidate, cpu=every)
    streamed = pricing.line((_CACHE,), _only(candidate, streamed=every), _seconds)
    half_s = streamed.token_s * question.block_size / 2  # that a last block is empty
    pool = question.hardware.host.pool_bytes_per_s
    read = pricing.line((_CACHE,), _only(candidate, streamed=every), lambda d: _bytes(d) / pool)
    way_s = pricing.layers((_PRE,), candidate) + pricing.layers((_POST,), candidate, lent=False)
    stages_s = way_s + pricing.lent(_on(Queue.ACCEL), candidate, _seconds)
    merges_s, ends_s = pricing.layers((_MERGE,), candidate), pricing.ends(candidate)
    loads_s, loaded = pricing.brings(candidate, LOAD, LOAD_MLP)
    reads_s, came = pricing.brings(candidate, READ)
    moved = candidate.batches * pricing.lent(MLP_CHAIN, candidate, _bytes)
    terms = ShareTerms(
        most_streamed_rows=times.footprint.most_streamed(candidate),
        stages_s=candidate.batches * (stages_s + merges_s + ends_s),
        weights_s=loads_s,
        way_s=way_s + pricing.lent(_OF_CPU, candidate, _seconds) + ends_s,
        slack=1.0,
        attention=pricing.line(_ATTENTION, _only(candidate, resident=rows), _seconds),
        cache=replace(streamed, row_s=streamed.row_s + half_s),
        queries=pricing.line(_QUERIES, cpu, _seconds),
        results=pricing.line(_RESULTS, cpu, _seconds),
        host=pricing.line(_HOST, cpu, _seconds),
        memory=replace(read, start_s=read.start_s + (loaded + came + moved) / pool),
        layers_overlap=times.order(candidate).layers_overlap,
        reads_s=reads_s,
        mlps=pricing.lent_line((CPU_MLP,), candidate),
        returns_s=candidate.batches * pricing.lent((_BACK,), candidate, _seconds),
    )
    pass_s = times.time(candidate).decode.period_s
    return replace(terms, slack=pass_s / longest_s(terms, mean_work(question, candidate)))


def mean_work(question: Question, candidate: BlockCandidate) -> PassWork:
    """Of a pass over a whole block at mean context."""
    batches, context = candidate.batches, question.lengths.context_tokens
    each = candidate.resident_rows, candidate.streamed_rows, candidate.cpu_rows
    counted = [value for rows in each for value in (rows * batches, rows * batches * context)]
    return PassWork(batches, *counted)


class _Pricing:
    """Sums of prices over a pass."""

    def __init__(self, times: BlockTimes, candidate: BlockCandidate) -> None:
        self._times, self._q = times, times.question
        model, size = self._q.model, self._q.block_size
        shape = candidate.shape(model.num_layers)
        self._sweep, self._lent = shape.in_passes, frozenset(shape.mlps_on_cpu)
        streamed = frozenset(shape.weights.layers)
        kinds = [
            (window, i in streamed, i in self._lent) for i, window in enumerate(model.layer_windows)
        ]
        self._layers = {kind: i for i, kind in enumerate(kinds)}
        self._counts = Counter(kinds)
        lengths = self._q.lengths
        self._near = max(1, round(lengths.prompt_tokens / size)) * size
        self._far = self._near + max(1, round(lengths.generated_tokens / size)) * size

    def layers(
        self, found: tuple[OpClass, ...], candidate: BlockCandidate, *, lent: bool = True
    ) -> float:
        """Seconds of a batch in all layers.

        Args:
            lent: in those, too, whose MLPs the CPU computes.
        """
        kinds = [kind for kind in self._counts if lent or not kind[-1]]
        return self._sum(found, candidate, self._near, _seconds, kinds)

    def lent(self, found: tuple[OpClass, ...], candidate: BlockCandidate, value: _Value) -> float:
        """Of a batch in the layers whose MLPs the CPU computes."""
        kinds = [kind for kind in self._counts if kind[-1]]
        return self._sum(found, candidate, self._near, value, kinds)

    def lent_line(self, found: tuple[OpClass, ...], candidate: BlockCandidate) -> TermLine:
        """Of a pass in such layers, from half of its sequences to all: as a block ends they become
        fewer, and where weights are read for longer than is computed, that changes nothing.
        """
        rows, fewer = candidate.rows, _halved(candidate)
        all_s = self.lent(found, candidate, _seconds)
        if not 0 < fewer.rows < rows:
            return TermLine(candidate.batches * all_s)
        row_s = (all_s - self.lent(found, fewer, _seconds)) / (rows - fewer.rows)
        row_s = min(max(0.0, row_s), all_s / rows)
        return TermLine(candidate.batches * (all_s - rows * row_s), row_s)

    def ends(self, candidate: BlockCandidate) -> float:
        """Of a batch, what the accelerator does before and after its layers."""
        price = self._times.prices.decode(candidate)
        there = [found for found in ENDS if found[1] is Queue.ACCEL]
        return sum(price(operation(found, 0)).alone_s for found in there)

    def brings(self, candidate: BlockCandidate, *found: OpClass) -> tuple[float, float]:
        """Of a pass, seconds and bytes of weights that come over the link, or from disk."""
        sweep, price = self._sweep, self._times.prices.decode(candidate)
        if not sweep.reloads:
            return 0.0, 0.0
        mlps = sum(layer in sweep.streamed.mlps for layer in sweep.loaded)
        counts: dict[OpClass, int] = {
            LOAD: len(sweep.loaded) - mlps, LOAD_MLP: mlps, READ: len(sweep.streamed.on_disk)
        }  # fmt: skip
        # the disk's rate is not known where nothing is read
        each = [
            (counts[one], price(operation(one, sweep.loaded[0]))) for one in found if counts[one]
        ]
        seconds = sum(count * one.alone_s for count, one in each)
        return seconds, sum(count * _bytes(one) for count, one in each)

    def line(
        self, found: tuple[OpClass, ...], candidate: BlockCandidate, value: _Value
    ) -> TermLine:
        """Of a pass, over sequences all of which have the same home."""
        rows, batches = candidate.rows, candidate.batches
        near, far = self._near, self._far
        here = self._sum(found, candidate, near, value)
        longer = self._sum(found, candidate, far, value)
        more = self._sum(found, _doubled(candidate), near, value)
        token_s = max(0.0, (longer - here) / (rows * (far - near)))
        row_s = max(0.0, (more - here) / rows - token_s * near)
        start_s = max(0.0, here - rows * (row_s + token_s * near))
        return TermLine(batches * start_s, row_s, token_s)

    def _sum(
        self,
        found: tuple[OpClass, ...],
        candidate: BlockCandidate,
        context: int,
        value: _Value,
        kinds: Iterable[_Kind] | None = None,
    ) -> float:
        price = self._times.prices_at(context).decode(candidate)
        return sum(
            self._counts[kind] * value(price(operation(each, self._layers[kind])))
            for kind in (self._counts if kinds is None else kinds)
            for each in found
        )


def _on(queue: Queue) -> tuple[OpClass, ...]:
    return tuple(found for found in _OF_CPU if found[1] is queue)


def _only(
    candidate: BlockCandidate, resident: int = 0, streamed: int = 0, cpu: int = 0
) -> BlockCandidate:
    return replace(candidate, resident_rows=resident, streamed_rows=streamed, cpu_rows=cpu)


def _doubled(c: BlockCandidate) -> BlockCandidate:
    return _only(c, 2 * c.resident_rows, 2 * c.streamed_rows, 2 * c.cpu_rows)


def _halved(c: BlockCandidate) -> BlockCandidate:
    return _only(c, c.resident_rows // 2, c.streamed_rows // 2, c.cpu_rows // 2)


def _seconds(demand: Demand) -> float:
    return demand.alone_s


def _bytes(demand: Demand) -> float:
    return demand.alone_s * demand.dram_bytes_per_s
