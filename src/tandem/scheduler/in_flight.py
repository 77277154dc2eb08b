"""Records of submitted steps, by which late events find their rows."""

from dataclasses import dataclass, field
from typing import NamedTuple

from tandem.plan.binding import IntArray, LongArray
from tandem.scheduler.row_set import RowSet


class RowsInFlight(NamedTuple):
    """Rows as they were when a step was submitted.

    Attributes:
        after: int32 [rows]; tokens with complete KV once the lane is done.
    """

    rows: RowSet
    after: IntArray


@dataclass(slots=True)
class StepInFlight:
    """A forward step: what has been submitted and which events are still due.

    Attributes:
        lanes: by lane, rows whose KV the step completes.
        cohorts: by lane, the cohort that joins.
        due: events that must arrive before another step may take this one's place; of a cohort's
            joins, the last one's decision, which comes after the others'.
    """

    step_id: int
    lanes: dict[int, RowsInFlight] = field(default_factory=lambda: {})
    cohorts: dict[int, int] = field(default_factory=lambda: {})
    due: set[tuple[str, int]] = field(default_factory=lambda: set())


class SamplingInFlight(NamedTuple):
    """One lane of a sampling program."""

    forward_step: int
    lane: int
    rows: RowSet


@dataclass(frozen=True, slots=True)
class LateRows:
    """Rows whose logits are there but whose sampling waits for tokens to reach the host."""

    forward_step: int
    lane: int
    rows: RowSet
    logits_index: LongArray


@dataclass(frozen=True, slots=True)
class MoveInFlight:
    """A row's blocks on their way to the other tier."""

    row: int
    epoch: int
    to_host: bool
    source: IntArray
    target: IntArray
    step_id: int


@dataclass(slots=True)
class Flight:
    """Everything in flight, and how far the executor has come.

    Attributes:
        demotions: ids of copies of cached blocks to the host.
        retired: all steps up to this one have signalled completely.
    """

    steps: dict[int, StepInFlight] = field(default_factory=dict[int, StepInFlight])
    sampling: dict[tuple[int, int], SamplingInFlight] = field(
        default_factory=dict[tuple[int, int], SamplingInFlight]
    )
    late: list[LateRows] = field(default_factory=list[LateRows])
    moves: dict[int, MoveInFlight] = field(default_factory=dict[int, MoveInFlight])
    demotions: set[int] = field(default_factory=set[int])
    next_step: int = 0
    retired: int = -1
    _early: set[int] = field(default_factory=set[int])

    def new_step(self) -> int:
        """Id of the next program; ids are dense and increasing."""
        self.next_step += 1
        return self.next_step - 1

    def retire(self, step_id: int) -> int | None:
        """Note that a program has signalled completely.

        Returns: the new value of `retired` if it rose (programs may retire out of order).
        """
        self._early.add(step_id)
        before = self.retired
        while self.retired + 1 in self._early:
            self.retired += 1
            self._early.discard(self.retired)
        return self.retired if self.retired > before else None

    @property
    def num_unsettled(self) -> int:
        """Forward steps with events still due."""
        count = 0
        for step in self.steps.values():  # a few, but asked for at each event
            if step.due:
                count += 1
        return count

    @property
    def busy(self) -> bool:
        """True if any program has not retired."""
        return self.retired + 1 < self.next_step

    def settle(self, step_id: int, what: str, lane: int) -> None:
        """An event that was due has come; forget steps of which none is left."""
        step = self.steps.get(step_id)
        if step is not None:
            step.due.discard((what, lane))
            if not step.due:
                del self.steps[step_id]
