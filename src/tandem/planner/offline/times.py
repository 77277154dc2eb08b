"""A block's passes in virtual time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tandem.plan.block_shape import BlockShape
from tandem.plan.block_template import block_template
from tandem.plan.prefill_template import prefill_template
from tandem.plan.program import ProgramOp, ProgramTemplate
from tandem.plan.weights import STREAM_SLOTS
from tandem.planner.demand import Demand
from tandem.planner.fluid.grouping import grouped_by
from tandem.planner.fluid.groups import Schedule
from tandem.planner.fluid.priced_sweep import PricedSweep
from tandem.planner.fluid.schedule import each_alone
from tandem.planner.fluid.virtual_time import SweepTime, repeated_sweep
from tandem.planner.offline.bound import BlockBound
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.footprint import BlockFootprint
from tandem.planner.offline.pass_work import PassWork
from tandem.planner.offline.precisions import Precisions
from tandem.planner.offline.prices import BlockPrices, Price
from tandem.planner.question import Question

_DRAWN_PASSES = 4
_SHOWN_PARTS = 4
"""Of prompts, in a layer."""
_Build = Callable[[BlockShape], ProgramTemplate]


@dataclass(frozen=True, slots=True)
class PassOrder:
    """In which order a pass goes through layers and brings their weights; as of `BlockShape`."""

    layers_overlap: bool = False
    weights_in_parts: bool = False


@dataclass(frozen=True, slots=True)
class BlockTime:
    """The two kinds of pass of a candidate: over its prompts, and one token for each sequence at
    mean context.
    """

    prefill: SweepTime
    decode: SweepTime


class BlockTimes:
    """Times for one question; equal ones are computed once.

    Args:
        like: of the same model on another machine, which has the same programs.
    """

    def __init__(self, question: Question, like: "BlockTimes | None" = None) -> None:
        self.question = question
        precisions = Precisions.of(question.precision)
        self.precisions = precisions
        room = None if like is None else like.footprint.room
        self.footprint = BlockFootprint(question, precisions, room)
        self.prices = BlockPrices(question, precisions, self.footprint)
        self.work = PassWork(question.model)
        self.bound = BlockBound(question, self.prices, self.work)
        self._dram_bytes_per_s = question.hardware.host.pool_bytes_per_s
        self._both_ways: float = question.link_both_ways
        made = {} if like is None else like._schedules
        self._schedules: dict[tuple[_Build, BlockShape], Schedule] = made
        self._times: dict[BlockCandidate, BlockTime] = {}
        self._orders: dict[BlockCandidate, PassOrder] = {}
        self._prices_at: dict[float, BlockPrices] = {}

    def prices_at(self, context_tokens: float) -> BlockPrices:
        """Prices if all sequences were that long."""
        if context_tokens not in self._prices_at:
            lengths = replace(self.question.lengths, context_tokens=context_tokens)
            question = replace(self.question, lengths=lengths)
            made = BlockPrices(question, self.precisions, self.footprint, at_mean=False)
            self._prices_at[context_tokens] = made
        return self._prices_at[context_tokens]

    def time(self, candidate: BlockCandidate) -> BlockTime:
        """In virtual time, with everything shared."""
        if candidate not in self._times:
            bound = self.bound
            prefill = self._steady(self.prefill_pass(candidate))
            decode = self._decode(candidate)
            # of queues that never repeat their state, one pass may be shorter than many can be
            self._times[candidate] = BlockTime(
                _at_least(prefill, bound.prefill_s(candidate)),
                _at_least(decode, bound.decode_s(candidate)),
            )
        return self._times[candidate]

    def prefill_pass(self, candidate: BlockCandidate) -> PricedSweep:
        """The program over all prompts, and its prices."""
        away = self.footprint.prompts_on_host(candidate)
        shape = candidate.shape(self.question.model.num_layers, prompts_on_host=away)
        shape = replace(shape, mlps_on_cpu=(), layers_on_cpu=())  # which matter to passes only
        price = self.prices.prefill(candidate)
        parts = self._parts_of_prompts(candidate) if away else 1
        if parts > 1:
            shape, price = replace(shape, batches=parts * shape.batches), _part(price, parts)
        return _priced(self._schedule(prefill_template, shape), price)

    def _parts_of_prompts(self, candidate: BlockCandidate) -> int:
        """In which a batch goes through a layer: while one's activations are on their way, another
        is computed, which a few of them show as well as all.
        """
        sizes = self.footprint.prompts.packed(candidate.rows)
        parts = candidate.rows * sum(count for _, count in (*sizes.parts, *sizes.alone))
        return max(1, min(round(parts / sizes.prompts), _SHOWN_PARTS // candidate.batches))

    def decode_pass(self, candidate: BlockCandidate) -> PricedSweep:
        """The program that gives every sequence a token, and its prices."""
        return self._decode_pass(candidate, self.order(candidate))

    def each_operation(self, candidate: BlockCandidate) -> list[PricedSweep]:
        """A pass over tokens, each operation by itself; those before, which bring queues into the
        state that they keep; and one that follows.
        """
        shape = self._decode_shape(candidate, self.order(candidate))
        schedule = each_alone(block_template(shape).ops)
        return [_priced(schedule, self.prices.decode(candidate))] * _DRAWN_PASSES

    def order(self, candidate: BlockCandidate) -> PassOrder:
        """In which its passes are shortest."""
        self.time(candidate)
        return self._orders[candidate]

    def _decode(self, candidate: BlockCandidate) -> SweepTime:
        """In whichever order takes less time; of those that take equally long, the first."""
        times = {
            order: self._steady(self._decode_pass(candidate, order)) for order in _orders(candidate)
        }
        order = min(times, key=lambda each: times[each].period_s)
        self._orders[candidate] = order
        return times[order]

    def _decode_pass(self, candidate: BlockCandidate, order: PassOrder) -> PricedSweep:
        shape = self._decode_shape(candidate, order)
        return _priced(self._schedule(block_template, shape), self.prices.decode(candidate))

    def _decode_shape(self, candidate: BlockCandidate, order: PassOrder) -> BlockShape:
        return candidate.shape(
            self.question.model.num_layers,
            layers_overlap=order.layers_overlap,
            weights_in_parts=order.weights_in_parts,
        )

    def _steady(self, passed: PricedSweep) -> SweepTime:
        """Of one pass among many alike."""
        return repeated_sweep(passed, self._dram_bytes_per_s, both_ways=self._both_ways)

    def _schedule(self, build: _Build, shape: BlockShape) -> Schedule:
        key = (build, shape)
        if key not in self._schedules:
            kind_of = self.prices.kind_of(shape)
            self._schedules[key] = grouped_by(build(shape).ops, kind_of)
        return self._schedules[key]


def _orders(candidate: BlockCandidate) -> Iterator[PassOrder]:
    """Those worth trying. Not layers that overlap where the CPU computes layers or MLPs, which all
    batches wait for; and parts only where more layers come than there are slots.
    """
    yield PassOrder()
    if candidate.columns:
        return
    divided = candidate.streamed > STREAM_SLOTS and not candidate.mlps
    if candidate.cpu_rows:
        if candidate.batches > 1 and not candidate.lent:
            yield PassOrder(layers_overlap=True, weights_in_parts=divided)
    elif candidate.recomputed_tokens and divided:
        yield PassOrder(weights_in_parts=True)


def _priced(schedule: Schedule, price: Price) -> PricedSweep:
    return PricedSweep(schedule, tuple(price(op) for op in schedule.ops))


def _part(price: Price, parts: int) -> Price:
    """Of one of so many parts of a batch; weights come once."""

    def of(op: ProgramOp) -> Demand:
        whole = price(op)
        return whole._replace(alone_s=whole.alone_s / parts) if op.lanes else whole

    return of


def _at_least(time: SweepTime, least_s: float) -> SweepTime:
    return replace(time, period_s=max(time.period_s, least_s))
