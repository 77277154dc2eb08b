"""Cohorts: rows that cross sweeps together, their attention on the host (contract 5)."""

from dataclasses import dataclass

from tandem.plan.program import LaneSlot
from tandem.scheduler.row_set import RowSet


@dataclass(slots=True)
class Cohort:
    """Rows computing one token each, one layer or several per sweep.

    Attributes:
        rows: members as of the token's start; a member that has died stays in place.
        cursor: layer whose host attention is under way.
        slot: the lane's arrays, the same in every sweep of the token.
        attended: host attentions submitted so far, the value that a join waits for.
        joining: step whose joins are undecided, None if the cursor is certain; `undecided` joins of
            it.
        has_device: members have keys on the device too.
    """

    cohort_id: int
    rows: RowSet
    slot: LaneSlot
    has_device: bool
    cursor: int
    attended: int = 1
    joining: int | None = None
    undecided: int = 0
