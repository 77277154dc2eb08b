"""What a strategy is shown, it cannot change."""

import numpy as np
import pytest

from tandem.scheduler.rows import RowState, RowTable


def test_a_read_only_table_shows_changes_and_takes_none() -> None:
    rows = RowTable(4, 8)
    facts = rows.read_only()
    row = rows.take()
    assert facts.state[row] == RowState.RUNNING
    assert facts.num_free == rows.num_free == 3
    for change in (
        facts.take,
        lambda: facts.free(row),
        lambda: facts.state.fill(0),
        lambda: facts.drop_blocks(row),
    ):
        with pytest.raises(ValueError, match="read-only"):
            change()
    assert rows.num_free == 3
    assert np.count_nonzero(rows.state) == 1
