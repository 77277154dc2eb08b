"""What the planner knows of an emulated accelerator is what probes find: the perturbed truth."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.profiles import MACHINE, profile

from tandem.bench.online.cell import DTYPE, Load
from tandem.bench.online.plans import ask, plan_policies
from tandem.cost.rates import accelerator_rates, d2h_rates, h2d_rates
from tandem.models.catalogue import plannable_spec
from tandem.plan.program import Queue
from tandem.planner.question import Question
from tandem.probes.accelerator import measure_accelerator
from tandem.probes.effort import coarse
from tandem.profiling.profile import Profile
from tandem.runtime.paced.perturbed_rates import Perturbation, PerturbedRates
from tandem.runtime.paced.probed import PacedAccelerator
from tandem.runtime.paced.virtual import VirtualClock
from tandem.spec.hardware import HardwareSpec
from tandem.spec.hardware_file import load_hardware, pair_hardware

PAIRS = ("small", "t4-scaled", "rtx4090-scaled")
MODEL = replace(plannable_spec("llama-2-7b"), num_layers=4, vocab_size=4000, eos_token_ids=())
WORKLOAD = Load(1, 600).workload()
HOST_BYTES = 8 << 30


def probed(hardware: HardwareSpec, truth: Perturbation) -> Profile:
    """A profile whose accelerator was probed in virtual time."""
    accelerator = PacedAccelerator(hardware, truth, VirtualClock())
    found = measure_accelerator(accelerator, coarse())
    machine = replace(MACHINE, accelerator=accelerator.name)
    return replace(profile(), machine=machine, accelerator=found)


def asked(hardware: HardwareSpec, truth: Perturbation) -> Question:
    return ask(probed(hardware, truth), MODEL, WORKLOAD, HOST_BYTES, 512)


@settings(max_examples=25, deadline=None)
@given(name=st.sampled_from(PAIRS), seed=st.integers(0, 1 << 20), jitter=st.sampled_from((0, 0.02)))
def test_the_perturbed_truth_reaches_the_planner_and_the_description_does_not(
    name: str, seed: int, jitter: float
) -> None:
    described = load_hardware(name)
    change = Perturbation(seed, terms=0.3, tile_rows=64, jitter=jitter)
    known, true = asked(described, change).hardware, PerturbedRates(described, DTYPE, change)
    rates = accelerator_rates(known, DTYPE)
    near = pytest.approx
    assert rates.bytes_per_s == near(true.device.bytes_per_s, rel=0.05)
    assert rates.flops_per_s == near(true.device.flops_per_s, rel=0.05)
    # 200 kernels after each other, launched once
    launched_s = known.accelerator.launch_latency_s / 200
    assert rates.kernel_overhead_s == near(true.device.kernel_overhead_s + launched_s, rel=0.1)
    assert h2d_rates(known).bytes_per_s == near(true.links[Queue.H2D].bytes_per_s, rel=0.05)
    assert d2h_rates(known).bytes_per_s == near(true.links[Queue.D2H].bytes_per_s, rel=0.05)
    # of codes, median kinds: a launch is a few percents of what a fast memory takes
    assert rates.quantize_share == near(true.device.quantize_share, rel=0.12)
    assert rates.dequantize_share == near(true.device.dequantize_share, rel=0.12)
    off = true.device.bytes_per_s / accelerator_rates(described, DTYPE).bytes_per_s
    if abs(off - 1) > 0.1:
        told = accelerator_rates(described, DTYPE).bytes_per_s
        assert rates.bytes_per_s != near(told, rel=0.05)


@pytest.mark.parametrize("card", ["a100-80", "h100"])
def test_a_launch_is_no_part_of_a_fast_memory_s_rate(card: str) -> None:
    """It is priced by itself: it was 4% of what an A100 took to copy what is copied."""
    described = pair_hardware(card, "server-genoa")
    change = Perturbation(5, terms=0.3)
    known = asked(described, change).hardware.accelerator
    true = PerturbedRates(described, DTYPE, change).device.bytes_per_s
    assert known.memory_bandwidth_bytes_per_s == pytest.approx(true, rel=1e-3)


def test_a_description_in_other_words_changes_no_plan() -> None:
    """Half the efficiency of twice the peak, under another name, is the same machine."""
    described, truth = load_hardware("t4-scaled"), Perturbation(3, terms=0.3, tile_rows=64)
    facts = described.accelerator
    reworded = replace(
        described,
        name="another",
        accelerator=replace(
            facts,
            memory_bandwidth_bytes_per_s=2 * facts.memory_bandwidth_bytes_per_s,
            memory_efficiency=facts.memory_efficiency / 2,
            flops_per_s={dtype: 4 * rate for dtype, rate in facts.flops_per_s.items()},
            compute_efficiency=facts.compute_efficiency / 4,
        ),
    )
    policies = ("auto", "gpu-only", "rendezvous")
    plans = plan_policies(asked(described, truth), policies)
    again = plan_policies(asked(reworded, truth), policies)
    assert [each.plan for each in again] == [each.plan for each in plans]
    assert plans[0].plan is not None


def test_another_truth_of_the_same_description_is_another_prediction() -> None:
    described = load_hardware("t4-scaled")
    predicted = {
        each.option.prediction.rates.tokens_per_s
        for seed in range(4)
        for each in plan_policies(asked(described, Perturbation(seed, terms=0.3)), ("gpu-only",))
        if each.option is not None
    }
    assert len(predicted) == 4
