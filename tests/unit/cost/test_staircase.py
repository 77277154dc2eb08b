"""Times over numbers of rows, known at some of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.cost.staircase import Staircase


def seconds(rows: int) -> float:
    """Flat while weights are read, then in proportion."""
    return max(3.0, rows / 20)


@given(most=st.integers(1, 5000))
def test_it_asks_for_few_sizes_and_for_both_ends(most: int) -> None:
    stairs = Staircase.of(seconds, most)
    assert stairs.sizes[0] == 1
    assert stairs.sizes[-1] == most
    assert list(stairs.sizes) == sorted(set(stairs.sizes))
    assert len(stairs.sizes) <= 26


@given(rows=st.integers(1, 2000))
def test_it_is_exact_where_the_times_are_linear_and_near_where_they_bend(rows: int) -> None:
    stairs = Staircase.of(seconds, 1000)
    bends = 48 < rows < 96  # the sizes around the bend at 60
    assert stairs.at(rows) == pytest.approx(seconds(rows), rel=0.2 if bends else 1e-12)


def test_no_rows_take_no_time() -> None:
    assert Staircase.of(seconds, 10).at(0) == 0.0


@given(rows=st.integers(1, 1000), tile=st.sampled_from((16, 64, 128)))
def test_with_tiles_it_is_exact_at_both_of_their_ends_and_between(rows: int, tile: int) -> None:
    def in_tiles(rows: int) -> float:
        return max(3.0, -(-rows // tile) * tile / 20)

    stairs = Staircase.of(in_tiles, 1000, tile)
    assert stairs.at(rows) == pytest.approx(in_tiles(rows), rel=1e-12)
