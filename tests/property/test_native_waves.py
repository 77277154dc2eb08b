"""Jobs that the compiled loop lives through take as long as those of Python's, to the bit."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tandem.planner import native
from tandem.planner.native_waves import native_job, native_times
from tandem.planner.sweep_times import ExpertTimes, SweepTimes
from tandem.planner.wave_job import WaveJob
from tandem.planner.wave_parts import part_of
from tandem.planner.waves import Home, Wave
from tandem.spec.model import ExpertSpec
from tandem.spec.workload import RequestShape

pytestmark = pytest.mark.skipif(not native.available(), reason="no compiled loops here")

SECONDS = st.floats(0.0, 1.0)
TOKENS = st.one_of(st.just(0.0), st.floats(0.0, 500.0))
MIXTURES = st.one_of(
    st.none(),
    st.builds(
        ExpertTimes,
        st.builds(ExpertSpec, st.integers(8, 64), st.integers(1, 8), st.just(64)),
        SECONDS,
        st.floats(1.0, 100.0),
    ),
)
SIZES = st.sets(st.integers(1, 300), min_size=1, max_size=4).map(sorted)


@st.composite
def sweep_times(draw: st.DrawFn) -> SweepTimes:
    return SweepTimes(
        draw(SECONDS),
        draw(SECONDS),
        draw(SECONDS),
        tuple((float(size), draw(SECONDS)) for size in draw(SIZES)),
        draw(st.none() | SECONDS),
        draw(MIXTURES),
    )


@given(times=sweep_times(), tokens=st.tuples(TOKENS, TOKENS, TOKENS))
def test_sweeps_take_as_long(times: SweepTimes, tokens: tuple[float, float, float]) -> None:
    assert native_times(times)(*tokens) == times(*tokens)


HOMES = st.builds(
    Home,
    st.integers(1, 90),
    st.integers(1, 40),
    st.booleans(),
    st.sampled_from((1.0, 4.0, 17.3)),
    st.sampled_from((0.0, 2.5)),
    st.sampled_from((0.0, 3.0)),
)
PROMPTS = st.one_of(st.integers(1, 200), st.sampled_from([64, 65]))
SHAPES = st.builds(RequestShape, PROMPTS, st.one_of(st.just(1), st.integers(1, 120)))
WAVES = st.builds(
    Wave,
    st.tuples(HOMES, HOMES),
    st.integers(1, 40),
    st.sampled_from([1, 10, 16]),
    st.floats(10.0, 200.0),
    st.one_of(st.just(1.0), st.floats(1.0, 4.0)),
)
NOWHERE = Home(0, 0, False)
SHORT = Wave((Home(50, 10, True), NOWHERE), 10, 10, 100)


def pythons(
    wave: Wave, shapes: Sequence[RequestShape], times: SweepTimes
) -> tuple[float, list[float], list[float], list[int]]:
    job = WaveJob(wave, shapes, times)
    return job.run(), job.begun_s, job.decoding_s, job.homes


@settings(deadline=None)
@given(wave=WAVES, shapes=st.lists(SHAPES, min_size=1, max_size=60), times=sweep_times())
@example(SHORT, [RequestShape(1, 100)] * 10, SweepTimes(1.0, 0.01, 0.1, ((1.0, 2.0),)))
@example(SHORT, [RequestShape(250, 1)] * 3, SweepTimes(1.0, 0.01, 0.1, ((1.0, 2.0),)))
def test_jobs_take_as_long_and_begin_as_early(
    wave: Wave, shapes: list[RequestShape], times: SweepTimes
) -> None:
    assert native_job(wave, shapes, times) == pythons(wave, shapes, times)


@pytest.mark.parametrize("seed", range(3))
def test_so_do_parts(seed: int) -> None:
    draw = random.Random(seed)
    shapes = [RequestShape(draw.randint(10, 200), draw.randint(5, 200)) for _ in range(400)]
    blocks, host = draw.choice([600, 2000]), Home(300, 20, False, 17.0)
    part, those = part_of(Wave((Home(blocks, 90, True), host), 110, 16, 512), shapes, share=0.2)
    assert part.each > 1
    times = SweepTimes(1.0, 1e-4, 1e-3, ((1.0, 0.1), (256.0, 0.3)))
    assert native_job(part, those, times) == pythons(part, those, times)


def test_a_price_may_be_any_function() -> None:
    def seconds(device_tokens: float, host_tokens: float, prompt_tokens: float) -> float:
        return 1.0 + device_tokens + 7 * prompt_tokens

    shapes = [RequestShape(30, 40)] * 15
    assert native_job(SHORT, shapes, seconds)[0] == WaveJob(SHORT, shapes, seconds).run()


def test_what_a_price_raises_is_raised() -> None:
    def fails(device_tokens: float, host_tokens: float, prompt_tokens: float) -> float:
        raise LookupError("no such sweep")

    with pytest.raises(LookupError, match="no such sweep"):
        native_job(SHORT, [RequestShape(30, 40)], fails)


@pytest.mark.parametrize(
    ("wave", "shapes", "reason"),
    [
        (SHORT, [], "a job needs a request"),
        (SHORT, [RequestShape(0, 1)], "tokens must be"),
        (Wave(SHORT.homes, 0, 10, 100), [RequestShape(1, 1)], "places"),
        (Wave(SHORT.homes, 1, 10, 0.0), [RequestShape(1, 1)], "prompt_tokens"),
        (
            Wave((Home(9, 0, True), Home(9, 0, True)), 1, 10, 1),
            [RequestShape(1, 1)],
            "no home has room",
        ),
    ],
)
def test_a_job_without_end_is_refused(wave: Wave, shapes: list[RequestShape], reason: str) -> None:
    def a_second(device_tokens: float, host_tokens: float, prompt_tokens: float) -> float:
        return 1.0

    with pytest.raises(ValueError, match=reason):
        native_job(wave, shapes, a_second)
