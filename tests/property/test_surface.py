"""Times read off measurements: exact where measured, between their neighbours elsewhere."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.profiling.surface import Curve, Surface

sizes = st.lists(st.integers(1, 10**6), min_size=1, max_size=6, unique=True).map(
    lambda found: tuple(map(float, sorted(found)))
)
a_size = st.floats(0.5, 2e6)
a_time = st.floats(1e-7, 10.0)


@st.composite
def surfaces(draw: st.DrawFn) -> Surface:
    first, second = draw(sizes), draw(sizes)
    row = st.tuples(*[a_time] * len(second))
    return Surface(first, second, draw(st.tuples(*[row] * len(first))))


@st.composite
def growing_surfaces(draw: st.DrawFn) -> Surface:
    """Larger sizes never take less time."""
    found = draw(surfaces())
    rows = [
        tuple(
            max(row[j] for row in found.seconds[: i + 1] for j in range(column + 1))
            for column in range(len(found.second))
        )
        for i in range(len(found.first))
    ]
    return Surface(found.first, found.second, tuple(rows))


@given(surfaces())
def test_what_was_measured_comes_back_exactly(surface: Surface) -> None:
    for first, row in zip(surface.first, surface.seconds, strict=True):
        for second, seconds in zip(surface.second, row, strict=True):
            assert surface.at(first, second) == (seconds, False)


@given(surfaces(), st.floats(0, 1), st.floats(0, 1))
def test_between_measurements_lie_between_their_extremes(
    surface: Surface, a: float, b: float
) -> None:
    def inside(axis: tuple[float, ...], share: float) -> float:
        return min(axis[-1], axis[0] + share * (axis[-1] - axis[0]))

    found = surface.at(inside(surface.first, a), inside(surface.second, b))
    every = [time for row in surface.seconds for time in row]
    assert not found.extrapolated
    assert min(every) * (1 - 1e-9) <= found.seconds <= max(every) * (1 + 1e-9)


@given(
    growing_surfaces(), st.floats(0.5, 2e6), st.floats(0.5, 2e6), st.floats(1, 3), st.floats(1, 3)
)
def test_more_work_never_takes_less_time(
    surface: Surface, first: float, second: float, more: float, also: float
) -> None:
    smaller, larger = surface.at(first, second), surface.at(first * more, second * also)
    assert larger.seconds >= smaller.seconds * (1 - 1e-9)


@given(surfaces(), st.floats(1.01, 100), st.floats(1.01, 100))
def test_outside_time_grows_in_proportion_and_says_so(
    surface: Surface, above: float, below: float
) -> None:
    corner = surface.at(surface.first[-1] * above, surface.second[0] / below)
    assert corner.extrapolated
    assert corner.seconds == pytest.approx(surface.seconds[-1][0] * above / below)


@given(sizes, st.data())
def test_a_curve_is_a_surface_of_one_size(axis: tuple[float, ...], data: st.DataObject) -> None:
    times = data.draw(st.tuples(*[a_time] * len(axis)))
    curve, surface = Curve(axis, times), Surface((1.0,), axis, (times,))
    size = data.draw(st.floats(0.5, 2e6))
    assert curve.at(size) == surface.at(1.0, size)


def test_a_product_of_sizes_beside_fixed_costs_is_met_exactly() -> None:
    def seconds(rows: float, context: float) -> float:
        return 3e-6 + 2e-6 * rows + 1e-9 * rows * context

    rows, contexts = (1.0, 8.0, 32.0), (64.0, 2048.0)
    surface = Surface(rows, contexts, tuple(tuple(seconds(r, c) for c in contexts) for r in rows))
    assert surface.at(5, 700).seconds == pytest.approx(seconds(5, 700))


@pytest.mark.parametrize("axis", [(), (0.0, 1.0), (2.0, 1.0), (1.0, 1.0), (1.0, math.inf)])
def test_sizes_must_ascend(axis: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="sizes must ascend"):
        Curve(axis, (1.0,) * len(axis))


@pytest.mark.parametrize("time", [0.0, -1.0, math.nan, math.inf])
def test_times_must_be_possible(time: float) -> None:
    with pytest.raises(ValueError, match="finite and above 0"):
        Curve((1.0,), (time,))


def test_nothing_has_no_time() -> None:
    with pytest.raises(ValueError, match="above 0"):
        Curve((1.0,), (1.0,)).at(0)
