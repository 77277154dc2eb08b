"""Terms of a plan's passes, from the prices that it was planned by."""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace

from tandem.cost.block_pass import PassWork, longest_s
from tandem.plan.program import OpKind, Part, Queue
from tandem.plan.share_terms import ShareTerms, TermLine
from tandem.planner.demand import Demand
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.times import BlockTimes
from tandem.planner.offline.work import (
    ALL_ON_CPU,
    CACHE,
    COLUMNS_CHAIN,
    CPU_CHAIN,
    CPU_COLUMNS,
    CPU_LAYER,
    CPU_MLP,
    CUT_CHAIN,
    ENDS,
    LOAD,
    LOAD_COLUMNS,
    LOAD_MLP,
    MLP_CHAIN,
    OWN_COLUMNS,
    PREFIX,
    READ,
    OnCpu,
    OpClass,
    by_layer,
    operation,
)
from tandem.planner.question import Question

_PRE = (OpKind.STAGE, Queue.ACCEL, Part.PRE)
_POST = (OpKind.STAGE, Queue.ACCEL, Part.POST)
_BACK = (OpKind.COPY, Queue.H2D, Part.RESIDUAL)
_UP = (OpKind.COPY, Queue.H2D, Part.QKV)
_DOWN = (OpKind.COPY, Queue.D2H, Part.PARTIAL)
_OF_CPU = tuple(found for found in MLP_CHAIN if found != CPU_MLP)
"""Around an MLP, or columns of one, that the CPU computes, on the accelerator and on the link."""
_MLPS: tuple[OnCpu, ...] = ("columns", "mlp")
_MERGE = (OpKind.MERGE, Queue.ACCEL, Part.NONE)
_ATTENTION = (
    (OpKind.APPEND, Queue.ACCEL, Part.NONE),
    (OpKind.ATTEND, Queue.ACCEL, Part.NONE),
)
_CACHE = (CACHE, PREFIX)
_RECOMPUTE = (OpKind.STAGE, Queue.ACCEL, Part.RECOMPUTE)
_QUERIES, _HOST, _RESULTS = CPU_CHAIN[:1], CPU_CHAIN[1:3], CPU_CHAIN[3:]
_Value = Callable[[Demand], float]
_Kind = tuple[int, bool, OnCpu]  # of layers: window, streamed, what of it is the CPU's
_HERE: tuple[OnCpu, ...] = ("none", "columns", "mlp")
"""Layers whose attention's maps are the accelerator's."""
_WHOLE: tuple[OnCpu, ...] = ("layer", "cut")
"""Those of which they are the CPU's."""


def share_terms(times: BlockTimes, candidate: BlockCandidate) -> ShareTerms:
    """Of a candidate; what is recomputed is among the stages, and its activations among what is
    streamed.

    Terms are straight lines through prices at the lengths of prompts and of whole requests, in
    whole blocks: exact but for windows. Slack makes a pass at mean context as long as it is in
    virtual time.
    """
    question = times.question
    pricing = _Pricing(times, candidate)
    every, rows, made = candidate.host_rows, candidate.rows, candidate.recomputed_tokens
    cpu, coded = _only(candidate, cpu=every), candidate.device_kv is not None
    passes = _only(candidate, streamed=every)
    streamed = pricing.line(_CACHE, passes, _seconds)
    half_s = streamed.token_s * question.block_size / 2  # that a last block is empty
    pool = question.hardware.host.pool_bytes_per_s
    read = pricing.line(_CACHE, passes, lambda d: _bytes(d) / pool)
    way_s = pricing.layers((_PRE,), candidate, _HERE) + pricing.layers(
        (_POST,), candidate, ("none",)
    )
    stages_s = way_s + pricing.layers(_on(Queue.ACCEL), candidate, _MLPS)
    stages_s += pricing.layers((OWN_COLUMNS,), candidate, ("columns", "cut"))
    stages_s += pricing.layers((_RECOMPUTE,), candidate, ALL_ON_CPU) if made else 0.0
    merges_s, ends_s = pricing.layers((_MERGE,), candidate, _HERE), pricing.ends(candidate)
    crossing_s = pricing.layers(_OF_CPU, candidate, _MLPS)
    returns_s = pricing.layers((_BACK,), candidate, (*_MLPS, "cut"))
    if candidate.resident_rows + candidate.streamed_rows:
        crossing_s += pricing.layers((_UP, _DOWN), candidate, _WHOLE)
        returns_s += pricing.layers((_UP,), candidate, _WHOLE)
    loads_s, loaded = pricing.brings(candidate, LOAD, LOAD_MLP, LOAD_COLUMNS)
    reads_s, came = pricing.brings(candidate, READ)
    moved = candidate.batches * pricing.on_cpu(candidate, _bytes)
    terms = ShareTerms(
        most_streamed_rows=times.footprint.most_streamed(candidate),
        stages_s=candidate.batches * (stages_s + merges_s + ends_s),
        weights_s=loads_s,
        way_s=way_s + crossing_s + ends_s,
        slack=1.0,
        attention=pricing.line(_ATTENTION, _only(candidate, resident=rows), _seconds),
        cache=replace(streamed, row_s=streamed.row_s + half_s),
        queries=pricing.line(_QUERIES, cpu, _seconds, _HERE),
        results=pricing.line(_RESULTS, cpu, _seconds, _HERE),
        host=pricing.line(_HOST, cpu, _seconds),
        memory=replace(read, start_s=read.start_s + (loaded + came + moved) / pool),
        layers_overlap=times.order(candidate).layers_overlap,
        reads_s=reads_s,
        mlps=pricing.computed(candidate),
        returns_s=candidate.batches * returns_s,
        # where what stays is in few bits, what passes costs what it does in slots
        streamed_attention=pricing.line(_ATTENTION, passes, _seconds) if coded else None,
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
        self._sweep = shape.in_passes
        self._divided = shape.divided
        streamed = frozenset(shape.weights.layers)
        on_cpu = by_layer(shape, self._sweep, self._divided)
        kinds = [(window, i in streamed, on_cpu[i]) for i, window in enumerate(model.layer_windows)]
        self._layers = {kind: i for i, kind in enumerate(kinds)}
        self._counts = Counter(kinds)
        lengths = self._q.lengths
        self._near = max(1, round(lengths.prompt_tokens / size)) * size
        self._far = self._near + max(1, round(lengths.generated_tokens / size)) * size

    def layers(
        self, found: tuple[OpClass, ...], candidate: BlockCandidate, on_cpu: Collection[OnCpu]
    ) -> float:
        """Seconds of a batch in layers of which the CPU computes that."""
        return self._sum(found, candidate, self._near, _seconds, on_cpu)

    def on_cpu(self, candidate: BlockCandidate, value: _Value) -> float:
        """Of a batch, what the CPU computes of layers and of MLPs; of these, their way, too."""
        layers = self._sum(CPU_LAYER, candidate, self._near, value, ("layer",))
        layers += self._sum(CUT_CHAIN, candidate, self._near, value, ("cut",))
        mlps = self._sum(MLP_CHAIN, candidate, self._near, value, ("mlp",))
        return layers + mlps + self._sum(COLUMNS_CHAIN, candidate, self._near, value, ("columns",))

    def computed(self, candidate: BlockCandidate) -> TermLine:
        """Of a pass, what the CPU computes but for attention, from half of its sequences to all: as
        a block ends they become fewer, and where weights are read for longer than is computed, that
        changes nothing.
        """
        rows, fewer = candidate.rows, _halved(candidate)
        all_s = self._computed_s(candidate)
        if not 0 < fewer.rows < rows:
            return TermLine(candidate.batches * all_s)
        row_s = (all_s - self._computed_s(fewer)) / (rows - fewer.rows)
        row_s = min(max(0.0, row_s), all_s / rows)
        return TermLine(candidate.batches * (all_s - rows * row_s), row_s)

    def _computed_s(self, candidate: BlockCandidate) -> float:
        layers = self.layers(CPU_LAYER, candidate, ("layer",))
        layers += self.layers(CUT_CHAIN, candidate, ("cut",))
        mlps = self.layers((CPU_MLP,), candidate, ("mlp",))
        return layers + mlps + self.layers((CPU_COLUMNS,), candidate, ("columns",))

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
        undivided = [layer for layer in sweep.loaded if layer not in self._divided]
        mlps = sum(layer in sweep.streamed.mlps for layer in undivided)
        counts: dict[OpClass, int] = {
            LOAD: len(undivided) - mlps, LOAD_MLP: mlps, LOAD_COLUMNS: len(self._divided),
            READ: len(sweep.streamed.on_disk),
        }  # fmt: skip
        # the disk's rate is not known where nothing is read
        each = [
            (counts[one], price(operation(one, sweep.loaded[0]))) for one in found if counts[one]
        ]
        seconds = sum(count * one.alone_s for count, one in each)
        return seconds, sum(count * _bytes(one) for count, one in each)

    def line(
        self,
        found: tuple[OpClass, ...],
        candidate: BlockCandidate,
        value: _Value,
        on_cpu: Collection[OnCpu] = ALL_ON_CPU,
    ) -> TermLine:
        """Of a pass, over sequences all of which have the same home, in such layers."""
        rows, batches = candidate.rows, candidate.batches
        if not rows:
            return TermLine()
        near, far = self._near, self._far
        here = self._sum(found, candidate, near, value, on_cpu)
        longer = self._sum(found, candidate, far, value, on_cpu)
        more = self._sum(found, _doubled(candidate), near, value, on_cpu)
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
        on_cpu: Collection[OnCpu],
    ) -> float:
        price = self._times.prices_at(context).decode(candidate)
        return sum(
            count * value(price(operation(each, self._layers[kind])))
            for kind, count in self._counts.items()
            if kind[-1] in on_cpu
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
