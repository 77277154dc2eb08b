"""What loads take at least, against sweeps lived through and counted out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.planner.questions import SMALL, ask

from tandem.plan.weights import STREAM_SLOTS
from tandem.planner.footprint import Footprint
from tandem.planner.relaxation.homes import LayerHome
from tandem.planner.relaxation.layer_prices import LayerPrice
from tandem.planner.relaxation.loads import Loads, loads_of, while_read_s
from tandem.planner.relaxation.prices import Prices

POOL = 10.0

layers = st.lists(
    st.tuples(
        st.floats(0.01, 2.0),  # seconds of the accelerator
        st.floats(0.0, 20.0),  # bytes that the CPU reads after that
        st.booleans(),  # whether it is loaded
    ),
    min_size=1,
    max_size=6,
)


def lived_s(
    sweep: list[tuple[float, float, bool]], rate: float, left: float, *, keeps: bool
) -> float:
    """Of a sweep whose loads, `left` bytes, are always under way.

    Args:
        keeps: copies keep their times beside the CPU, as on the emulator; else both are slowed.
    """
    now_s, slower = 0.0, POOL / (POOL + rate)
    for stage_s, size, _ in sweep:
        now_s, left = now_s + stage_s, max(0.0, left - rate * stage_s)
        beside_s = left / (rate if keeps else rate * slower)
        read_s = min(beside_s, size / (POOL * slower))
        left -= read_s * (rate if keeps else rate * slower)
        now_s += read_s + (size - read_s * POOL * slower) / POOL
    return now_s + left / rate


@given(layers, st.floats(0.5, 20.0), st.floats(0.1, 30.0), st.booleans())
def test_no_sweep_that_waits_for_the_cpu_is_shorter(
    sweep: list[tuple[float, float, bool]], rate: float, loaded: float, keeps: bool
) -> None:
    loaded *= any(comes for _, _, comes in sweep)
    homes: tuple[LayerHome, LayerHome] = ("resident", "streamed")
    counts = [sum(comes == there for _, _, comes in sweep) for there in (False, True)]
    stage_s = [sum(s for s, _, comes in sweep if comes == there) for there in (False, True)]
    priced: dict[LayerHome, LayerPrice] = {
        home: LayerPrice(seconds / max(1, count))
        for home, seconds, count in zip(homes, stage_s, counts, strict=True)
    }
    if loaded:
        size = loaded / counts[1]
        priced["streamed"] = priced["streamed"]._replace(link_s=size / rate, loaded_bytes=size)
    each_s, beside_s = while_read_s(POOL, priced, Loads(), 0.0)
    least_s = beside_s + sum(s * count for s, count in zip(each_s, counts, strict=True))
    least_s += sum(size for _, size, _ in sweep) / POOL
    assert lived_s(sweep, rate, loaded, keeps=keeps) >= least_s * (1 - 1e-9)


def test_a_sweep_whose_loads_never_end_is_as_short_as_that() -> None:
    """Two seconds of the accelerator, then 20 bytes beside loads at 5 a second."""
    layer: dict[LayerHome, LayerPrice] = {
        "streamed": LayerPrice(2.0, link_s=5.0, loaded_bytes=25.0)
    }
    [each_s], beside_s = while_read_s(POOL, layer, Loads(), 0.0)
    assert each_s + beside_s + 20 / POOL == pytest.approx(5.0)
    assert lived_s([(2.0, 20.0, True)], 5.0, 25.0, keeps=True) == pytest.approx(5.0)


QUESTION = ask(SMALL, prompt="32", generate="100", requests=1000)
PRICES = Prices(QUESTION, Footprint(QUESTION), executed=True)
LAYER: dict[LayerHome, LayerPrice] = {
    "streamed": LayerPrice(1.0, link_s=3.0, dram_bytes=30.0, loaded_bytes=30.0),
    "host": LayerPrice(2.0, cpu_s=2.0),
}


@pytest.mark.parametrize("stay", range(SMALL.num_layers + 1))
def test_no_loads_are_fewer(stay: int) -> None:
    """Of layers that are not lent, as many as there are slots stay in them, if all others are."""
    loads = loads_of(PRICES, LAYER, 0)
    least_s = loads.times * stay * LAYER["streamed"].link_s - loads.spared_s
    loaded = 0 if stay <= STREAM_SLOTS else stay
    assert least_s <= loaded * LAYER["streamed"].link_s * (1 + 1e-9)
    if loaded in (0, SMALL.num_layers) and stay >= STREAM_SLOTS:
        assert least_s == pytest.approx(loaded * LAYER["streamed"].link_s)
    assert loads.spared_bytes == pytest.approx(10 * loads.spared_s)


def test_all_are_loaded_where_prompts_are_read_or_none_may_be_lent() -> None:
    assert loads_of(PRICES, LAYER, 32) == Loads()
    assert loads_of(PRICES, {"streamed": LAYER["streamed"]}, 0) == Loads()


def test_searches_begin_with_what_the_looser_programme_finds() -> None:
    assert loads_of(Prices(QUESTION, Footprint(QUESTION)), LAYER, 0).times == 1
