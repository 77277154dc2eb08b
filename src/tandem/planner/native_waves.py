"""Jobs that the compiled loop lives through (`native/planner/wave_job.cpp`)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tandem.memory.growth_reserve import growth_reserve
from tandem.planner.native import loops
from tandem.planner.sweep_times import SweepTimes
from tandem.spec.workload import RequestShape, are_alike

if TYPE_CHECKING:
    from tandem.planner import _loops
    from tandem.planner.waves import Home, SweepS, Wave


def native_job(
    wave: "Wave", shapes: Sequence[RequestShape], sweep_s: "SweepS"
) -> tuple[float, list[float], list[float], list[int]]:
    """What `WaveJob` gives, of the compiled loop, which must be there; a function of Python's as
    price is called for each step.

    Returns: as the attributes of `LivedJob`.
    """
    assert loops is not None
    device, host = (_home(home, wave.places) for home in wave.homes)
    those = loops.Wave(device, host, wave.places, wave.block_size, wave.prompt_tokens, wave.each)
    times = len(shapes) if are_alike(shapes) else 1
    told_apart = shapes[:1] if times > 1 else shapes
    lengths = [(shape.prompt_tokens, shape.generated_tokens) for shape in told_apart] * times
    priced = native_times(sweep_s) if isinstance(sweep_s, SweepTimes) else sweep_s
    return loops.job(those, lengths, priced)


def native_times(times: SweepTimes) -> "_loops.SweepTimes":
    """The same, without Python."""
    assert loops is not None
    experts = None
    if times.experts is not None:
        mixture = times.experts.experts
        without = 1.0 - mixture.per_token / mixture.count
        experts = without, times.experts.all_s, times.experts.row_tokens
    return loops.SweepTimes(
        times.least_s,
        times.device_token_s,
        times.host_token_s,
        times.prompts,
        times.hosted_s,
        experts,
    )


def _home(home: "Home", places: int) -> tuple[int, int, int, float, float, float]:
    # while another begins, at most all other places are taken
    reserved = growth_reserve(places, home.blocks) if home.reserves else 0
    sweeps = home.sweeps_per_token, home.sweeps_per_prompt, home.sweeps_leaving
    return (home.blocks, home.most, reserved, *sweeps)
