"""Whole tiles of rows of which some places are empty."""

from math import ceil, exp, lgamma, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.cost.varying_rows import VaryingRows


def expected(most: int, empty: float, tile: int) -> float:
    """Term by term: as many empty places as there can be, all more as one."""
    chances = [exp(k * log(empty) - empty - lgamma(k + 1)) for k in range(most)]
    sizes = [tile * ceil((most - k) / tile) for k in range(most)]
    return sum(p * size for p, size in zip(chances, sizes, strict=True))


@given(
    most=st.integers(60, 1000), empty=st.floats(1e-6, 900.0), tile=st.sampled_from((1, 16, 64, 128))
)
def test_it_is_the_mean_over_numbers_of_empty_places(most: int, empty: float, tile: int) -> None:
    found = VaryingRows(most, empty).whole_tiles(tile)
    assert found == pytest.approx(expected(most, empty, tile), rel=1e-4, abs=0.01)


@given(
    most=st.integers(0, 600),
    more=st.integers(0, 200),
    empty=st.floats(0.0, 30.0),
    tile=st.sampled_from((1, 16, 64, 128)),
)
def test_more_rows_never_take_fewer_tiles(most: int, more: int, empty: float, tile: int) -> None:
    few, many = VaryingRows(most, empty), VaryingRows(most + more, empty)
    assert few.whole_tiles(tile) <= many.whole_tiles(tile) + 1e-6
    assert many.whole_tiles(tile) <= VaryingRows(most + more).whole_tiles(tile) + 1e-6


def test_where_no_place_is_empty_tiles_are_counted() -> None:
    assert [VaryingRows(most).whole_tiles(64) for most in (0, 1, 64, 65)] == [0, 64, 64, 128]


def test_lanes_of_a_sweep_fill_tiles_together() -> None:
    main, cohort = VaryingRows(100, 2.0), VaryingRows(40, 0.5)
    assert main.plus(cohort) == VaryingRows(140, 2.5)
