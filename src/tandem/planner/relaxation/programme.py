"""A linear programme, built row by row."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # of the solver, which most processes have no use for
    from tandem.planner.relaxation.highs import Basis

INFINITY = float("inf")

Entries = Sequence[tuple[int, float]]
"""Columns and their coefficients."""
Row = tuple[Entries, float, bool]
"""Entries, what they are at most, and whether they are that."""


@dataclass(frozen=True, slots=True)
class Optimum:
    """The least value, and the columns that reach it.

    Attributes:
        basis: which rows and columns are at their ends; where a programme much like this one may
            begin.
    """

    value: float
    columns: tuple[float, ...]
    basis: "Basis"


@dataclass(slots=True)
class Programme:
    """Minimise `costs x` where all rows hold and `0 <= x <= upper`.

    Rows are divided by their largest coefficient. Choose the columns' units so that their values
    are about 1: the solver's tolerances are absolute.
    """

    _columns: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    _rows: list[Row] = field(default_factory=list[Row])

    @property
    def columns(self) -> Sequence[tuple[float, float]]:
        """Each one's cost, and what it is at most."""
        return self._columns

    @property
    def rows(self) -> Sequence[Row]:
        """In the order in which they were asked for."""
        return self._rows

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self._rows), len(self._columns)

    def copy(self) -> "Programme":
        """Another one of the same columns and rows, to which more can be added."""
        return Programme(self._columns.copy(), self._rows.copy())

    def column(self, cost: float = 0.0, upper: float = INFINITY) -> int:
        """A new variable."""
        self._columns.append((cost, upper))
        return len(self._columns) - 1

    def at_most(self, entries: Entries, limit: float) -> None:
        """Ask that `entries <= limit`."""
        self._rows.append((entries, limit, False))

    def equal(self, entries: Entries, value: float) -> None:
        """Ask that `entries == value`."""
        self._rows.append((entries, value, True))
