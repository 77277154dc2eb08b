"""How often a cohort's tokens come, as steps are priced by, beside the same in virtual time."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from tests.fakes.paced import TINY

from tandem.bench.steady_start import DEVICE, HOST, SteadyStart, fill
from tandem.cost.step_prices import StepPrices
from tandem.engine.building.paced import build_paced_core
from tandem.engine.building.paced_machine import PacedOptions
from tandem.plan.interposition import token_rhythm
from tandem.plan.program import StepProgram
from tandem.runtime.paced.virtual import VirtualClock, VirtualPool
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.strategies.asymmetric import Asymmetric
from tandem.scheduler.view import SchedulerView
from tandem.spec.config import EngineConfig
from tandem.spec.hardware_file import load_hardware

LAYERS = 6
MODEL = replace(TINY, num_layers=LAYERS)
SWEEPS = 90
NO_TIME_S = 1e-9


class Tempo:
    """One cohort with passes of its own, which joins ahead, or not."""

    name, uses_host = "tempo", True

    def __init__(self, *, ahead: bool) -> None:
        self._ahead = ahead

    def propose(self, view: SchedulerView, prices: StepPrices | None) -> StepProposal:
        return Asymmetric().propose(view, prices)._replace(starts_ahead=self._ahead)


def sweeps_of_entries(passes: int, in_flight: int, *, ahead: bool) -> list[int]:
    """In which a cohort enters."""
    config = EngineConfig(
        "m", dtype="float32", strategy="asymmetric", block_size=16, max_model_len=400,
        gpu_memory="64MiB", cpu_memory="64MiB", max_num_seqs=4, max_num_batched_tokens=64,
        max_host_seqs=2, enable_prefix_caching=False,
    )  # fmt: skip
    options = PacedOptions(
        cache_bytes=1 << 16,
        plan=lambda plan: replace(
            plan, max_cohorts=1, interposition_budget=passes, launch_ahead_steps=in_flight
        ),
    )
    engine = build_paced_core(
        config,
        MODEL,
        load_hardware("small"),
        options,
        strategy=SteadyStart(Tempo(ahead=ahead)),
        clock=VirtualClock(),
        pool=VirtualPool(lambda task: NO_TIME_S),
    )
    count, entries = Counter[str](), list[int]()
    submit = engine.executor.submit

    def spy(program: StepProgram) -> None:
        count["sweeps"] += bool(program.lanes)
        if any(slot.cohort_id and not slot.cohort_signal for slot in program.lanes):
            entries.append(count["sweeps"])
        submit(program)

    try:
        fill(engine, {DEVICE: 2, HOST: 2}, 20, 300)
        engine.executor.submit = spy
        while count["sweeps"] < SWEEPS:
            engine.core.step()
    finally:
        engine.core.close()
    return entries


@pytest.mark.parametrize("in_flight", [1, 2, 3])
@pytest.mark.parametrize("passes", [0, 1, 3, LAYERS])
@pytest.mark.parametrize("ahead", [True, False])
def test_a_token_takes_as_many_sweeps_as_it_is_priced_by(
    passes: int, in_flight: int, ahead: bool
) -> None:
    gaps = np.diff(sweeps_of_entries(passes, in_flight, ahead=ahead))
    rhythm = token_rhythm(LAYERS, passes, 1 if ahead else in_flight, in_flight)
    assert len(gaps) > 3
    assert set(gaps.tolist()) == {rhythm.sweeps}
