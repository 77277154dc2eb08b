"""Rows that are the last ones again have the same set, as long as they have the same owners."""

import numpy as np

from tandem.scheduler.row_set import RowSets
from tandem.scheduler.rows import RowTable


def test_the_same_rows_keep_their_set_until_one_has_another_owner() -> None:
    table = RowTable(4, 2)
    rows = np.array([table.take(), table.take()], dtype=np.int64)
    sets = RowSets(table)
    first = sets.of(rows)
    assert sets.of(rows.copy()) is first
    assert sets.of(rows[:1]) is not first
    again = sets.of(rows)
    table.free(int(rows[1]))
    assert table.take() == rows[1]
    other = sets.of(rows)
    assert other is not again
    assert other.epochs.tolist() == [0, 1]
