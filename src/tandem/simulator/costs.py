"""What a program's operations ask of the hardware, from its arrays and the planner's prices."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

from tandem.cost.lane_work import LaneWork, count_work
from tandem.cost.stage import AttentionWork
from tandem.plan.program import (
    LaneSlot,
    OpKind,
    PageTransfer,
    Part,
    ProgramOp,
    ProgramTemplate,
    StepProgram,
)
from tandem.planner.demand import Demand, Demands
from tandem.planner.fluid.alike import Alike, alike_groups
from tandem.planner.fluid.grouping import grouped, layer_kind
from tandem.planner.fluid.groups import OpCounts, Schedule
from tandem.planner.fluid.priced_sweep import sums_of
from tandem.planner.fluid.queues import Work
from tandem.planner.fluid.reads_in_place import with_reads_in_place
from tandem.planner.load import Load
from tandem.scheduler.counted_lanes import CountedBinding
from tandem.scheduler.counting_compiler import CountedProgram
from tandem.spec.tier import Tier

if TYPE_CHECKING:
    from tandem.planner import _loops

_NOTHING = Demand(0.0)
_DEVICE, _HOST = Tier.DEVICE, Tier.HOST
_MAX_KNOWN = 10_000
_LONE = (0,)
_Counts = tuple[int, ...]
_Shape = tuple[int, tuple[int, ...], frozenset[int]]
"""A schedule, which lanes have one load, and lanes that are left out."""


@dataclass(slots=True, eq=False)
class PricedShape:
    """Of programs of one shape: what costs the same in all of them is priced once.

    A cohort with passes has a lane for each, all with its load, so that of its operations there are
    as many as passes, and as few prices as of one pass.

    Attributes:
        ops: operations that differ in price, each the first one of its kind.
        single: places in `ops` of those whose prices depend on more than counts.
        counted: of each of `ops`, its kind's number and which loads' counts its price depends on;
            None: it is a single one.
        costs: different sums of operations by places in `ops`, added in the schedule's order.
        cost_of: of each group, which of them it is.
        native: what the compiled queues made of its schedule, if they have seen it.
    """

    ops: tuple[ProgramOp, ...]
    single: tuple[int, ...]
    counted: tuple[tuple[int, tuple[int, ...]] | None, ...]
    costs: tuple[OpCounts, ...]
    cost_of: tuple[int, ...]
    native: "_loops.Schedule | None" = None

    def works(self, demands: Sequence[Demand]) -> list[Work]:
        """What each group asks for, of what operations do, by `ops`."""
        works = sums_of(self.costs, demands)
        return [works[number] for number in self.cost_of]


class SampledLane(NamedTuple):
    """A lane of a sampling program: rows of logits, and nothing else."""

    logits: int

    @property
    def tokens(self) -> int:
        """As many as rows."""
        return self.logits

    def num_queries(self, tier: Tier) -> int:
        """None: it does not attend."""
        del tier
        return 0

    def num_appended(self, tier: Tier) -> int:
        """None."""
        del tier
        return 0

    def seen(self, tier: Tier, window: int) -> AttentionWork:
        """No keys."""
        del tier, window
        return AttentionWork(0, 0, 0)


class ProgramLoad(NamedTuple):
    """All that the price of a program depends on beside its schedule.

    Attributes:
        lanes: by the template's lanes.
        firsts: of each lane, the first one with the same load.
        counts: of each load, all that prices depend on but for attention.
        transfers: of PAGES copies, in their order.
    """

    lanes: tuple[Load, ...]
    firsts: tuple[int, ...]
    counts: tuple[_Counts, ...]
    transfers: tuple[PageTransfer, ...] = ()

    @classmethod
    def of(cls, lanes: tuple[Load, ...], transfers: tuple[PageTransfer, ...] = ()) -> Self:
        """Of lanes, those with the same load having the same object."""
        seen: dict[int, int] = {}
        firsts = tuple([seen.setdefault(id(lane), at) for at, lane in enumerate(lanes)])
        counts = tuple([_counts(lanes[first]) for first in seen.values()])
        return cls(lanes, firsts, counts, transfers)

    @classmethod
    def of_one(cls, lane: Load) -> Self:
        """Of a lone lane."""
        return cls((lane,), _LONE, (_counts(lane),))


class ProgramCosts:
    """Schedules, loads and works of one engine's programs.

    Args:
        windows: of each layer of the model.
        dense: in a model with experts, layers without.
        hosted: token embeddings are in host memory.
        experts: of each mixture that is elsewhere, those on the accelerator.
        read_in_place: layers on disk that are computed where they are read to, ascending: on the
            host alone, whose programs have no reads.
    """

    def __init__(
        self,
        demands: Demands,
        block_size: int,
        windows: tuple[int, ...],
        dense: Collection[int] = (),
        *,
        hosted: bool = False,
        experts: int = 0,
        read_in_place: tuple[int, ...] = (),
    ) -> None:
        self._read_in_place = read_in_place
        self._demands, self._block_size, self._hosted = demands, block_size, hosted
        self._experts = experts
        self._windows, self._dense = windows, dense
        self._schedules: dict[int, tuple[ProgramTemplate, Schedule]] = {}
        self._alike: dict[int, Alike | None] = {}
        self._cohorts: dict[int, LaneWork] = {}
        self._kind_of = layer_kind(windows, dense)
        self._priced: dict[_Shape, PricedShape] = {}
        self._known: dict[tuple[_Shape, tuple[_Counts, ...]], list[Demand]] = {}
        self._kinds: dict[tuple[object, ...], int] = {}
        self._by_counts: dict[tuple[int | _Counts, ...], Demand] = {}

    def schedule(self, template: ProgramTemplate) -> Schedule:
        """The template's groups; templates recur, so each is grouped once."""
        known = self._schedules.get(id(template))
        if known is None:
            # the template is kept with its groups, so that its id stays its own
            ops = with_reads_in_place(template.ops, self._read_in_place)
            known = template, grouped(ops, self._windows, self._dense)
            self._schedules[id(template)] = known
        return known[1]

    def alike(self, schedule: Schedule) -> Alike | None:
        """Groups of one of these schedules that recur."""
        key = id(schedule)
        if key not in self._alike:
            self._alike[key] = alike_groups(schedule)
        return self._alike[key]

    def load(self, program: StepProgram) -> ProgramLoad:
        """Count a program's work."""
        if isinstance(program, CountedProgram):
            counted = program.work or SampledLane(program.num_sampled)
            return ProgramLoad.of_one(counted)
        if program.sampling:
            return ProgramLoad.of(tuple([SampledLane(len(each.rows)) for each in program.sampling]))
        return ProgramLoad.of(self._lanes(program.lanes), program.transfers)

    def _lanes(self, slots: Sequence[LaneSlot]) -> tuple[LaneWork, ...]:
        """A cohort has the same work in every sweep of its token, with the same binding in each of
        its lanes, which follow each other.
        """
        found: list[LaneWork] = []
        last, work = None, None
        for slot in slots:
            if work is None or slot.binding is not last:
                last, work = slot.binding, self._work(slot)
            found.append(work)
        return tuple(found)

    def _work(self, slot: LaneSlot) -> LaneWork:
        if isinstance(slot.binding, CountedBinding):
            return slot.binding.work
        known = self._cohorts.get(slot.cohort_id)
        if known is None:
            known = count_work(slot.binding, self._block_size, self._windows)
            if slot.cohort_id:
                self._cohorts[slot.cohort_id] = known
        return known

    def forget_cohort(self, cohort_id: int) -> None:
        """A cohort's token has ended."""
        self._cohorts.pop(cohort_id, None)

    def priced(
        self, schedule: Schedule, load: ProgramLoad, left_out: frozenset[int]
    ) -> tuple[PricedShape, list[Demand]]:
        """What a program's operations ask for, by `PricedShape.ops`, without the lanes that are
        left out.
        """
        shape = id(schedule), load.firsts, left_out
        priced = self._priced.get(shape)
        if priced is None:
            if len(self._priced) > _MAX_KNOWN:
                self._priced.clear()
            priced = self._priced[shape] = self._price(schedule, load.firsts, left_out)
        demands = self._shared(shape, priced, load, left_out).copy()
        pages = iter(load.transfers)
        for index in priced.single:
            op = priced.ops[index]
            if op.part is Part.PAGES:
                blocks = len(next(pages).source_blocks)
                demands[index] = self._demands.of_blocks(op.queue, blocks)
            else:
                demands[index] = self._demand(op, load, left_out)
        return priced, demands

    def _price(
        self, schedule: Schedule, firsts: tuple[int, ...], left_out: frozenset[int]
    ) -> PricedShape:
        """Which operations, and which sums of them, are of one price."""
        numbers: dict[tuple[object, ...], int] = {}
        ops: list[ProgramOp] = []
        counted: list[tuple[int, tuple[int, ...]] | None] = []
        places: list[int] = []
        load_of = {first: number for number, first in enumerate(dict.fromkeys(firsts))}
        for op in schedule.ops:
            lanes = tuple(firsts[lane] for lane in op.lanes if lane not in left_out)
            copy = op.ordinal if op.part is Part.PAGES else 0  # no two are alike
            what = op.kind, op.queue, op.part, op.tier, self._kind_of(op), copy, bool(op.lanes)
            number = numbers.setdefault((*what, lanes), len(ops))
            if number == len(ops):
                ops.append(op)
                kind = self._kinds.setdefault(what, len(self._kinds))
                loads = tuple([load_of[lane] for lane in lanes])
                counted.append(None if _is_single(op) else (kind, loads))
            places.append(number)
        sums: dict[OpCounts, int] = {}
        which = [
            sums.setdefault(tuple((places[op], times) for op, times in cost), len(sums))
            for cost in schedule.costs
        ]
        single = tuple(index for index, op in enumerate(ops) if _is_single(op))
        return PricedShape(
            tuple(ops),
            single,
            tuple(counted),
            tuple(sums),
            tuple(which[n] for n in schedule.cost_of),
        )

    def _shared(
        self, shape: _Shape, priced: PricedShape, load: ProgramLoad, left_out: frozenset[int]
    ) -> list[Demand]:
        """Of all operations but the single ones, which programs with equal counts share."""
        known = self._known.get((shape, load.counts))
        if known is None:
            if len(self._known) > _MAX_KNOWN:
                self._known.clear()
            known = self._known[shape, load.counts] = [
                _NOTHING if asked is None else self._counted(op, *asked, load, left_out)
                for op, asked in zip(priced.ops, priced.counted, strict=True)
            ]
        return known

    def _counted(
        self,
        op: ProgramOp,
        kind: int,
        loads: tuple[int, ...],
        load: ProgramLoad,
        left_out: frozenset[int],
    ) -> Demand:
        """Of an operation whose price depends on counts alone, which others of its kind share."""
        key = (kind, *[load.counts[number] for number in loads])
        known = self._by_counts.get(key)
        if known is None:
            if len(self._by_counts) > _MAX_KNOWN:
                self._by_counts.clear()
            known = self._by_counts[key] = self._demand(op, load, left_out)
        return known

    def _demand(self, op: ProgramOp, load: ProgramLoad, left_out: frozenset[int]) -> Demand:
        lanes = [load.lanes[lane] for lane in op.lanes if lane not in left_out]
        if op.lanes and not lanes:
            return _NOTHING
        return self._demands.of(op, lanes, hosted=self._hosted, experts=self._experts)


def _is_single(op: ProgramOp) -> bool:
    """Whether its price depends on more than counts."""
    return op.part is Part.PAGES or op.kind is OpKind.ATTEND


def _counts(lane: Load) -> tuple[int, ...]:
    """All that prices depend on, but for attention."""
    return (
        lane.tokens, lane.logits, lane.num_queries(_DEVICE), lane.num_queries(_HOST),
        lane.num_appended(_DEVICE), lane.num_appended(_HOST),
    )  # fmt: skip
