"""Rows that are treated alike, and what is known of them for as long as they keep their owners."""

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tandem.plan.binding import IntArray, LongArray
from tandem.scheduler.kept import Kept
from tandem.scheduler.rows import RowState, RowTable

_Scalar = TypeVar("_Scalar", bound=np.generic)
_DRAINING = RowState.DRAINING
_ONE = np.array(1, dtype=np.int32)


class SamplingColumns(NamedTuple):
    """Sampling parameters of some rows, as in `SamplingRows`.

    Attributes:
        special: int64; those of the rows that need more than these columns.
        logprobs: the most alternatives that any row wants, None if none wants any.
    """

    greedy: bool
    temperature: NDArray[np.float32]
    top_p: NDArray[np.float32]
    min_p: NDArray[np.float32]
    top_k: IntArray
    seeds: NDArray[np.uint64]
    special: LongArray
    logprobs: int | None


class RowSet:
    """Some rows of a table. What was gathered is kept: steady decode asks for the same each step.

    Attributes:
        rows: int64 [rows].
        index: by which to index columns: a slice where the rows are evenly spaced, since that
            gathers nothing.
        epochs: int32 [rows]; as of when the set was made.
    """

    def __init__(self, table: RowTable, rows: LongArray) -> None:
        self._table = table
        self._version = self._owners_version = table.version
        self.rows = rows
        self.index: slice | LongArray = _evenly_spaced(rows)
        self.epochs: IntArray = self.of(table.epoch)

    def __len__(self) -> int:
        return len(self.rows)

    def of(self, column: NDArray[_Scalar]) -> NDArray[_Scalar]:
        """A copy of the rows' entries."""
        found = column[self.index]
        return found.copy() if isinstance(self.index, slice) else found

    def count_up(self, column: IntArray) -> None:
        """One more in each of the rows' entries."""
        if isinstance(self.index, slice):
            entries = column[self.index]
            np.add(entries, _ONE, out=entries)
        else:
            column[self.index] += _ONE

    def count_down(self, column: IntArray) -> None:
        """One less."""
        if isinstance(self.index, slice):
            entries = column[self.index]
            np.subtract(entries, _ONE, out=entries)
        else:
            column[self.index] -= _ONE

    @property
    def current(self) -> bool:
        """True if no row of the table has changed its owner or the place of its KV."""
        return self._version == self._table.version

    def alive(self) -> LongArray | None:
        """Places of the rows that still have their owners; None: of all."""
        if self._owners_version == self._table.version:
            return None
        same = self._table.epoch[self.index] == self.epochs
        if np.count_nonzero(same) < len(same):
            return same.nonzero()[0]
        self._owners_version = self._table.version
        return None

    def some(self, places: LongArray) -> "RowSet":
        """The rows at some places."""
        return RowSet(self._table, self.rows[places])

    # --- what stays true while they keep their owners ---------------------------------------------

    @Kept
    def places(self) -> IntArray:
        """The rows, as bindings have them: int32 [rows]."""
        return self.rows.astype(np.int32)

    @Kept
    def everywhere(self) -> LongArray:
        """All places, ascending: int64 [rows]."""
        return np.arange(len(self.rows), dtype=np.int64)

    @Kept
    def request_ids(self) -> list[str]:
        """Owners."""
        return self._table.request_ids[self.index].tolist()

    @Kept
    def cached_tokens(self) -> IntArray:
        """Prompt tokens that came from the prefix cache: int32 [rows]."""
        return self.of(self._table.cached)

    @Kept
    def late(self) -> NDArray[np.bool_] | None:
        """Rows whose sampling needs their whole history; None: no row."""
        if not self._table.had_late:
            return None
        return _or_none(self.of(self._table.late))

    @Kept
    def sampling(self) -> SamplingColumns:
        """Parameters that do not change from token to token."""
        t = self._table
        temperature, special = self.of(t.temperature), self.rows[t.special[self.index]]
        wanted = int(t.logprobs[self.index].max(initial=-1))
        return SamplingColumns(
            greedy=len(special) == 0 and not temperature.any(),
            temperature=temperature,
            top_p=self.of(t.top_p),
            min_p=self.of(t.min_p),
            top_k=self.of(t.top_k),
            seeds=self.of(t.seed),
            special=special,
            logprobs=None if wanted < 0 else wanted,
        )

    @Kept
    def _stop_ids(self) -> list[LongArray]:
        return [self.of(ids) for ids in self._table.stop_ids[: self._table.num_stop_ids]]

    @Kept
    def _careful(self) -> NDArray[np.bool_] | None:
        """Rows that want log-probabilities or have many stop ids; None: no row."""
        t = self._table
        if not t.had_careful:
            return None
        return _or_none((t.logprobs[self.index] >= 0) | t.many_stops[self.index])

    # --- what a step asks -------------------------------------------------------------------------

    def full(self) -> NDArray[np.bool_]:
        """Which rows may have no further token."""
        return self._table.known[self.index] >= self._table.limit[self.index]

    def stopped(self, tokens: LongArray) -> NDArray[np.bool_] | None:
        """Which of `tokens`, one per row, end their row's sequence, as far as the table knows;
        None: no row has such a token.
        """
        found = None
        for ids in self._stop_ids:
            equal = ids == tokens
            found = equal if found is None else found | equal
        return found

    def needs_care(self) -> NDArray[np.bool_] | None:
        """Rows of which there is more to say than their token, or which may be dead; None: no
        row.
        """
        if not self._table.count(_DRAINING):
            return self._careful
        draining = self._table.state[self.index] == int(_DRAINING)
        return draining if self._careful is None else draining | self._careful


class RowSets:
    """Row sets of a table: rows that are the last ones again, with the same owners, have the same
    set, and what was gathered of them.
    """

    def __init__(self, table: RowTable) -> None:
        self._table = table
        self._last: RowSet | None = None

    def of(self, rows: LongArray) -> RowSet:
        """Of some rows."""
        last = self._last
        if last is None or not last.current or not same_rows(last.rows, rows):
            last = self._last = RowSet(self._table, rows)
        return last


def same_rows(rows: LongArray, others: LongArray) -> bool:
    """Whether they are the same, in the same order."""
    return len(rows) == len(others) and rows.tobytes() == others.tobytes()


def _evenly_spaced(rows: LongArray) -> slice | LongArray:
    if len(rows) == 0:
        return rows
    first, last = int(rows[0]), int(rows[-1])
    if len(rows) == 1:
        return slice(first, first + 1)
    step, rest = divmod(last - first, len(rows) - 1)
    if step < 1 or rest or np.count_nonzero(rows[1:] - rows[:-1] == step) < len(rows) - 1:
        return rows
    return slice(first, last + 1, step)


def _or_none(mask: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    return mask if np.count_nonzero(mask) else None
