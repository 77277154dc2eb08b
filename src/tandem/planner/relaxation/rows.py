"""Ranges of how many requests run at once, in steps of one size: what all numbers in a range have
in common is bounded together.
"""

from typing import NamedTuple


class Range(NamedTuple):
    """Whole numbers from `least` to `most`."""

    least: int
    most: int

    def halves(self) -> tuple["Range", "Range"]:
        """Two of about the same ratio of their ends; of more than one number."""
        middle = int((max(self.least, 0.5) * self.most) ** 0.5)
        middle = min(max(middle, self.least), self.most - 1)
        return Range(self.least, middle), Range(middle + 1, self.most)


NO_ROWS = Range(0, 0)


class Rows(NamedTuple):
    """Ranges of what a sweep carries.

    Attributes:
        through: rows that take part in all layers. cohort: rows that pass through one.
        step_tokens: as in `Candidate`.
    """

    through: Range
    cohort: Range = NO_ROWS
    step_tokens: int = 0
