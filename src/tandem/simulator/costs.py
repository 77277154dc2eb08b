"""What a program's operations ask of the hardware, from its arrays and the planner's prices."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tandem.cost.lane_work import LaneWork, count_work
from tandem.cost.stage import AttentionWork
from tandem.plan.program import OpKind, PageTransfer, Part, ProgramOp, ProgramTemplate, StepProgram
from tandem.planner.demand import Demand, Demands
from tandem.planner.fluid.alike import Alike, alike_groups
from tandem.planner.fluid.grouping import grouped
from tandem.planner.fluid.groups import Schedule
from tandem.planner.fluid.priced_sweep import group_works
from tandem.planner.fluid.queues import Work
from tandem.planner.fluid.reads_in_place import with_reads_in_place
from tandem.planner.load import Load
from tandem.scheduler.counting_compiler import CountedProgram
from tandem.spec.tier import Tier

_NOTHING = Demand(0.0)
_MAX_KNOWN = 10_000
_Key = tuple[int, tuple[tuple[int, ...], ...], frozenset[int]]
"""A schedule, the lanes' counts, and lanes that are left out."""


class _Known(NamedTuple):
    """Of programs with equal counts.

    Attributes:
        demands: of all operations but `single`, whose prices depend on more; by their places.
    """

    demands: list[Demand]
    single: list[tuple[int, ProgramOp]]


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


@dataclass(frozen=True, slots=True)
class ProgramLoad:
    """All that the price of a program depends on beside its schedule.

    Attributes:
        lanes: by the template's lanes.
        transfers: of PAGES copies, in their order.
        counts: of each lane, all that prices depend on but for attention.
    """

    lanes: tuple[Load, ...] = ()
    transfers: tuple[PageTransfer, ...] = ()
    counts: tuple[tuple[int, ...], ...] = field(init=False)

    def __post_init__(self) -> None:
        # the dataclass is frozen
        object.__setattr__(self, "counts", tuple(map(_counts, self.lanes)))


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
        self._known: dict[_Key, _Known] = {}

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
            return ProgramLoad((counted,))
        if program.sampling:
            return ProgramLoad(tuple(SampledLane(len(rows.rows)) for rows in program.sampling))
        return ProgramLoad(
            tuple(self._lane(program, lane) for lane in range(len(program.lanes))),
            program.transfers,
        )

    def _lane(self, program: StepProgram, lane: int) -> LaneWork:
        """A cohort has the same work in every sweep of its token."""
        slot = program.lanes[lane]
        known = self._cohorts.get(slot.cohort_id)
        if known is None:
            known = count_work(slot.binding, self._block_size, self._windows)
            if slot.cohort_id:
                self._cohorts[slot.cohort_id] = known
        return known

    def forget_cohort(self, cohort_id: int) -> None:
        """A cohort's token has ended."""
        self._cohorts.pop(cohort_id, None)

    def works(
        self, schedule: Schedule, load: ProgramLoad, left_out: frozenset[int]
    ) -> Sequence[Work]:
        """What each group asks for, without the lanes that are left out."""
        key = (id(schedule), load.counts, left_out)
        known = self._known.get(key)
        if known is None:
            if len(self._known) > _MAX_KNOWN:
                self._known.clear()
            known = self._known[key] = self._shared(schedule, load, left_out)
        demands, pages = known.demands.copy(), iter(load.transfers)
        for index, op in known.single:
            if op.part is Part.PAGES:
                blocks = len(next(pages).source_blocks)
                demands[index] = self._demands.of_blocks(op.queue, blocks)
            else:
                demands[index] = self._demand(op, load, left_out)
        return group_works(schedule, demands)

    def _shared(self, schedule: Schedule, load: ProgramLoad, left_out: frozenset[int]) -> _Known:
        single = [(index, op) for index, op in enumerate(schedule.ops) if _is_single(op)]
        demands = [
            _NOTHING if _is_single(op) else self._demand(op, load, left_out) for op in schedule.ops
        ]
        return _Known(demands, single)

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
    device, host = Tier.DEVICE, Tier.HOST
    return (
        lane.tokens, lane.logits, lane.num_queries(device), lane.num_queries(host),
        lane.num_appended(device), lane.num_appended(host),
    )  # fmt: skip
