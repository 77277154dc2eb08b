"""Programs on fluid queues: what the executor asks of them, and Python's."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from tandem.planner.fluid.queues import CPU, FluidQueues, Join, Span, Submission, Work
from tandem.simulator.costs import ProgramCosts
from tandem.simulator.flying import Flying


class GroupEnded(NamedTuple):
    """A group that means something to the scheduler, or the last one of a program, has ended."""

    flying: Flying
    group: int
    complete: bool


class ProgramQueues(Protocol):
    """Queues for programs; sums and moments are as of `FluidQueues`."""

    @property
    def now_s(self) -> float:
        """The last start or end that has been reached."""
        ...

    @property
    def busy_s(self) -> Sequence[float]:
        """How long each queue has been busy."""
        ...

    @property
    def dram_bytes(self) -> float:
        """Moved in the host's memory."""
        ...

    @property
    def hidden_s(self) -> float:
        """How long the CPU has been busy beside the accelerator."""
        ...

    def submit(self, flying: Flying, not_before_s: float) -> None:
        """Append a program's groups to their queues."""
        ...

    def advance(self, until_s: float) -> list[GroupEnded]:
        """Go on to the next moment at which something that is reported ends; nothing if nothing
        does up to `until_s`, or ever. Lanes that are left out are noted in their program.
        """
        ...

    def release(self, cohort_id: int) -> None:
        """Forget a cohort that has ended."""
        ...


def without_refused(flying: Flying) -> "tuple[Flying, frozenset[int]] | None":
    """The sampling of a program of which lanes are left out, and which lanes of it are therefore;
    None: there is none.
    """
    sampling = flying.sampled_by
    if sampling is None or not flying.left_out:
        return None
    places = enumerate(sampling.sampling_lanes)
    return sampling, frozenset(place for place, lane in places if lane in flying.left_out)


class PythonQueues:
    """`FluidQueues` for programs. Every event is reported.

    Args:
        on_span: told when a group of operations ran.
    """

    def __init__(
        self,
        costs: ProgramCosts,
        dram_bytes_per_s: float,
        on_span: Callable[[Span], None] | None = None,
    ) -> None:
        self._costs = costs
        self._queues = FluidQueues(dram_bytes_per_s, on_span)
        self._signals: dict[tuple[int, int], int] = {}
        self._under_way: dict[Flying, Submission] = {}

    @property
    def now_s(self) -> float:
        """See `ProgramQueues`."""
        return self._queues.now_s

    @property
    def busy_s(self) -> Sequence[float]:
        """See `ProgramQueues`."""
        return self._queues.busy_s

    @property
    def dram_bytes(self) -> float:
        """See `ProgramQueues`."""
        return self._queues.dram_bytes

    @property
    def hidden_s(self) -> float:
        """See `ProgramQueues`."""
        return self._queues.hidden_s

    def submit(self, flying: Flying, not_before_s: float) -> None:
        """See `ProgramQueues`."""
        schedule = flying.schedule
        submission = Submission(
            schedule,
            lambda left_out: self._price(flying, left_out),
            not_before_s,
            self._joins(flying),
            schedule.events,
            label=flying,
            alike=self._costs.alike(schedule),
        )
        self._under_way[flying] = submission
        self._queues.submit(submission)

    def advance(self, until_s: float) -> list[GroupEnded]:
        """See `ProgramQueues`."""
        found: list[GroupEnded] = []
        for submission, group, complete in self._queues.advance(until_s):
            flying = submission.label
            assert isinstance(flying, Flying)
            found.append(GroupEnded(flying, group, complete))
            if complete:
                del self._under_way[flying]
        return found

    def release(self, cohort_id: int) -> None:
        """See `ProgramQueues`."""
        for key in [key for key in self._signals if key[0] == cohort_id]:
            del self._signals[key]
        self._queues.chain.forget(cohort_id)

    def _price(self, flying: Flying, left_out: frozenset[int]) -> Sequence[Work]:
        """The works of a program; if lanes are left out of it, they are not sampled either."""
        flying.left_out = left_out
        also = without_refused(flying)
        if also is not None and also[0] in self._under_way:
            self._under_way[also[0]].works = self._works(*also)
        return self._works(flying, left_out)

    def _works(self, flying: Flying, left_out: frozenset[int]) -> Sequence[Work]:
        priced, demands = self._costs.priced(flying.schedule, flying.load, left_out)
        return priced.works(demands)

    def _joins(self, flying: Flying) -> dict[int, Join]:
        """What each join waits for; notes what others will, in this program's order."""
        joins: dict[int, Join] = {}
        base, slots = self._queues.submitted[CPU], flying.slots
        for index in flying.schedule.cohorts if slots else ():
            group = flying.schedule.groups[index]
            if group.joins is not None:
                slot, shape = slots[group.joins], flying.template.lanes[group.joins]
                bound_s = flying.max_wait_s if shape.guarded else None
                attention = slot.cohort_id, slot.cohort_signal
                joins[index] = Join(group.joins, self._signals[attention], bound_s, attention)
            if group.raises is not None:
                slot = slots[group.raises]
                self._queues.chain.submitted(slot.cohort_id, slot.cohort_signal)
                self._signals[slot.cohort_id, slot.cohort_signal + 1] = base + group.place
        return joins
