"""Cohorts: rows that cross sweeps together, their attention on the host (contract 5)."""

from dataclasses import dataclass

from tandem.plan.program import LaneSlot
from tandem.scheduler.row_set import RowSet


@dataclass(slots=True)
class Cohort:
    """Rows computing one token each, one layer or several per sweep.

    Joins are decided in the order in which they were submitted. Those that follow one that was
    refused are refused, too, and the cohort stands where it stood.

    Attributes:
        rows: members as of the token's start; a member that has died stays in place.
        slot: the lane's arrays, the same in every sweep of the token.
        has_device: members have keys on the device too.
        stops: layers at which it joins, in order.
        ahead: it joins before it is known whether its last joins happened; else afterwards.
        joined: joins that happened. The attention for the next one is under way.
        undecided: joins in flight that may happen. doomed: joins in flight before them that will
            not, since the one that they follow did not.
        last: step and lane of the undecided join with which the token ends.
    """

    cohort_id: int
    rows: RowSet
    slot: LaneSlot
    has_device: bool
    stops: tuple[int, ...]
    ahead: bool
    joined: int = 0
    undecided: int = 0
    doomed: int = 0
    last: tuple[int, int] | None = None

    @property
    def cursor(self) -> int | None:
        """Layer of the next join, if those in flight happen; None: the token ends with them."""
        place = self.joined + self.undecided
        return self.stops[place] if place < len(self.stops) else None

    @property
    def ends_next(self) -> bool:
        """Whether the token ends with the next join; its rows are sampled then."""
        return self.cursor == self.stops[-1]

    @property
    def may_join(self) -> bool:
        """Whether the next sweep may have a join of it."""
        return self.cursor is not None and (self.ahead or not self.undecided)

    @property
    def attention(self) -> int:
        """Number of the attention that the next join waits for, from 1."""
        return self.joined + self.undecided + 1

    def submit(self, joins: int) -> None:
        """So many joins have been submitted, one after the other."""
        self.undecided += joins

    def decide(self, *, joined: bool) -> bool:
        """The first join in flight has been decided.

        Returns: whether it was refused of itself, and those that follow it with it; from then on
            the cohort joins only what is certain.
        """
        if self.doomed:
            assert not joined, f"cohort {self.cohort_id} joined what it could not have come to"
            self.doomed -= 1
            return False
        self.undecided -= 1
        if joined:
            self.joined += 1
            return False
        self.doomed, self.undecided, self.ahead = self.undecided, 0, False
        return True
