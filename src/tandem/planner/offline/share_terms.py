"""Terms of a plan's passes, from the prices that it was planned by."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from tandem.cost.block_pass import PassWork, longest_s
from tandem.plan.program import OpKind, Part, Queue
from tandem.plan.share_terms import ShareTerms, TermLine
from tandem.planner.demand import Demand
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.times import BlockTimes
from tandem.planner.offline.work import CPU_CHAIN, ENDS, LOAD, READ, OpClass, operation
from tandem.planner.question import Question

_PRE = (OpKind.STAGE, Queue.ACCEL, Part.PRE)
_POST = (OpKind.STAGE, Queue.ACCEL, Part.POST)
_MERGE = (OpKind.MERGE, Queue.ACCEL, Part.NONE)
_ATTENTION = (
    (OpKind.APPEND, Queue.ACCEL, Part.NONE),
    (OpKind.ATTEND, Queue.ACCEL, Part.NONE),
)
_CACHE = (OpKind.COPY, Queue.H2D, Part.CACHE)
_QUERIES, _HOST, _RESULTS = CPU_CHAIN[:1], CPU_CHAIN[1:3], CPU_CHAIN[3:]
_Value = Callable[[Demand], float]


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
    stages_s = pricing.layers((_PRE, _POST), candidate) * candidate.batches
    merges_s = pricing.layers((_MERGE,), candidate) * candidate.batches
    loads_s, loaded = pricing.brings(LOAD, candidate)
    reads_s, came = pricing.brings(READ, candidate)
    terms = ShareTerms(
        most_streamed_rows=times.footprint.most_streamed(candidate),
        stages_s=stages_s + merges_s + pricing.ends(candidate) * candidate.batches,
        weights_s=loads_s,
        way_s=stages_s / candidate.batches,
        slack=1.0,
        attention=pricing.line(_ATTENTION, _only(candidate, resident=rows), _seconds),
        cache=replace(streamed, row_s=streamed.row_s + half_s),
        queries=pricing.line(_QUERIES, cpu, _seconds),
        results=pricing.line(_RESULTS, cpu, _seconds),
        host=pricing.line(_HOST, cpu, _seconds),
        memory=replace(read, start_s=read.start_s + (loaded + came) / pool),
        layers_overlap=times.layers_overlap(candidate),
        reads_s=reads_s,
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
        weights = candidate.shape(model.num_layers).weights
        self._streamed, self._weights = frozenset(weights.layers), weights
        kinds = [(window, i in self._streamed) for i, window in enumerate(model.layer_windows)]
        self._layers = {kind: i for i, kind in enumerate(kinds)}
        self._counts = Counter(kinds)
        lengths = self._q.lengths
        self._near = max(1, round(lengths.prompt_tokens / size)) * size
        self._far = self._near + max(1, round(lengths.generated_tokens / size)) * size

    def layers(self, found: tuple[OpClass, ...], candidate: BlockCandidate) -> float:
        """Seconds of a batch in all layers."""
        return self._sum(found, candidate, self._near, _seconds)

    def ends(self, candidate: BlockCandidate) -> float:
        """Of a batch, what the accelerator does before and after its layers."""
        price = self._times.prices.decode(candidate)
        there = [found for found in ENDS if found[1] is Queue.ACCEL]
        return sum(price(operation(found, 0)).alone_s for found in there)

    def brings(self, found: OpClass, candidate: BlockCandidate) -> tuple[float, float]:
        """Of a pass, seconds and bytes of weights that come over the link, or from disk."""
        weights = self._weights
        count = len(weights.on_disk if found == READ else weights.layers)
        if not count or len(weights.layers) <= weights.slots:
            return 0.0, 0.0
        one = self._times.prices.decode(candidate)(operation(found, weights.layers[0]))
        return count * one.alone_s, count * _bytes(one)

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
        self, found: tuple[OpClass, ...], candidate: BlockCandidate, context: int, value: _Value
    ) -> float:
        price = self._times.prices_at(context).decode(candidate)
        return sum(
            count * value(price(operation(each, self._layers[kind])))
            for kind, count in self._counts.items()
            for each in found
        )


def _only(
    candidate: BlockCandidate, resident: int = 0, streamed: int = 0, cpu: int = 0
) -> BlockCandidate:
    return replace(candidate, resident_rows=resident, streamed_rows=streamed, cpu_rows=cpu)


def _doubled(c: BlockCandidate) -> BlockCandidate:
    return _only(c, 2 * c.resident_rows, 2 * c.streamed_rows, 2 * c.cpu_rows)


def _seconds(demand: Demand) -> float:
    return demand.alone_s


def _bytes(demand: Demand) -> float:
    return demand.alone_s * demand.dram_bytes_per_s
