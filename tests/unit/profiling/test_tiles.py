"""How wide a product's tiles are, from times alone."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.probes.effort import coarse
from tandem.profiling.measurements import LinearTimes
from tandem.profiling.surface import Surface
from tandem.profiling.tiles import measured_code_tile, measured_tile

ROWS = tuple(map(float, coarse().card_rows))
SIDE = 4096


def times(
    tile: int, read_rows: int = 100, noise: float = 0.0, start_s: float = 2e-6
) -> LinearTimes:
    """Of products that read their weights for as long as `read_rows` rows are multiplied.

    Args:
        start_s: what each takes beside its work.
    """
    draw = random.Random(tile)

    def seconds(rows: float) -> float:
        wholes = -(-rows // tile) * tile
        work_s = 1e-6 * max(read_rows, wholes)
        return (start_s + work_s) * (1 + draw.uniform(-noise, noise))

    return LinearTimes("float16", Surface((SIDE**2,), ROWS, (tuple(map(seconds, ROWS)),)))


@given(
    tile=st.sampled_from((16, 32, 64, 128)),
    read_rows=st.integers(1, 200),
    start_s=st.floats(0, 2e-5),
)
def test_stairs_tell_their_tile(tile: int, read_rows: int, start_s: float) -> None:
    assert measured_tile([times(tile, read_rows, 0.003, start_s)]) == tile


@given(read_rows=st.integers(1, 2000), noise=st.floats(0, 0.02))
def test_a_straight_line_has_none(read_rows: int, noise: float) -> None:
    assert measured_tile([times(1, read_rows, noise)]) is None


def test_times_that_weights_bound_tell_nothing() -> None:
    assert measured_tile([times(64, read_rows=512)]) is None


def test_types_must_agree() -> None:
    assert measured_tile([times(64), times(64, 150)]) == 64
    assert measured_tile([times(64), times(128)]) is None
    assert measured_tile([]) is None


@pytest.mark.parametrize("least", [2, 5])
def test_few_sizes_tell_nothing(least: int) -> None:
    """Profiles made before ends of tiles were probed, or of hardly any rows."""
    surface = Surface((SIDE**2,), ROWS[:least], (times(64, 1).surface.seconds[0][:least],))
    assert measured_tile([LinearTimes("float16", surface)]) is None


@given(tile=st.sampled_from((32, 64)), read_rows=st.integers(1, 90))
def test_of_few_rows_by_codes_two_stairs_are_enough(tile: int, read_rows: int) -> None:
    by_codes = times(tile, min(read_rows, tile + 20), 0.003)
    others = times(16).surface  # beyond the most rows another kernel multiplies
    seconds = (
        code if rows <= 128 else other
        for rows, code, other in zip(
            ROWS, by_codes.surface.seconds[0], others.seconds[0], strict=True
        )
    )
    mixed = LinearTimes("int4/64", Surface((SIDE**2,), ROWS, (tuple(seconds),)))
    assert measured_code_tile([mixed], 128) == tile


def test_codes_that_reading_bounds_tell_nothing_and_contradict_nobody() -> None:
    read = times(64, read_rows=512)
    assert measured_code_tile([read], 128) is None
    assert measured_code_tile([read, times(64, read_rows=30)], 128) == 64
    assert measured_code_tile([times(32, 20), times(64, 30)], 128) is None
