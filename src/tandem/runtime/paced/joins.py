"""When cohorts join sweeps of the paced emulator, and when they are refused."""

import math

from tandem.plan.cohort_chain import CohortChain
from tandem.plan.program import LaneSlot
from tandem.runtime.paced.program import PacedProgram


class Joins:
    """Stamps of cohorts, and the bounds of who waits for them.

    Attributes:
        decision_s: moment at which a guarded join will be refused unless its cohort is stamped by
            then; infinite: none is waited for.
    """

    def __init__(self) -> None:
        self.decision_s = math.inf
        self._stamps: dict[tuple[int, int], float] = {}
        self._chain = CohortChain()

    def submitted(self, program: PacedProgram) -> None:
        """Its cohorts go on from one sweep to the next."""
        for slot in program.program.lanes:
            self._chain.submitted(slot.cohort_id, slot.cohort_signal)

    def stamp(self, slot: LaneSlot, end_s: float) -> None:
        """A cohort's part on the host has ended."""
        self._stamps[(slot.cohort_id, slot.cohort_signal + 1)] = end_s

    def forget(self, cohort_id: int) -> None:
        """A finished cohort will not be joined any more."""
        for key in [key for key in self._stamps if key[0] == cohort_id]:
            del self._stamps[key]
        self._chain.forget(cohort_id)

    def decide(
        self, entered: PacedProgram, lane: int, ready_s: float, passed_s: float
    ) -> float | None:
        """When the wait for a cohort that began at `ready_s` ends; None if that is not known yet.

        A guarded join is decided at the bound of its wait, whichever way the cohort turns out
        later.

        Args:
            passed_s: the time until which all stamps are known.
        """
        program = entered.program
        slot: LaneSlot = program.lanes[lane]
        if self._chain.is_broken(slot.cohort_id, slot.cohort_signal):
            entered.guards[lane] = False
            return ready_s
        stamp_s = self._stamps.get((slot.cohort_id, slot.cohort_signal))
        bounded = program.template.lanes[lane].guarded and program.max_join_wait_s is not None
        limit_s = ready_s + (program.max_join_wait_s or 0.0) if bounded else math.inf
        if stamp_s is not None and stamp_s <= limit_s:
            entered.guards[lane] = True
            self._chain.joined(slot.cohort_id, slot.cohort_signal)
            return max(ready_s, stamp_s)
        if stamp_s is None and passed_s < limit_s:
            self.decision_s = min(self.decision_s, limit_s)
            return None
        entered.guards[lane] = False
        return limit_s
