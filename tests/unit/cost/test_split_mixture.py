"""Times of mixtures of which the accelerator has a part."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.cost.expert_use import ExpertUse
from tandem.cost.rates import accelerator_rates
from tandem.cost.split_mixture import MixtureBytes, MixturePart
from tandem.cost.stage import stage_cost
from tandem.cost.sweep_time import SplitTimes, Way, layer_times, split_times, sweep_s
from tandem.models.catalogue import plannable_spec
from tandem.spec.dtype import DType
from tandem.spec.hardware_file import load_hardware
from tandem.spec.layer_operations import layer_operations
from tandem.spec.operations import split_experts
from tandem.spec.parameters import expert_matrix_bytes, mlp_matrix_bytes
from tandem.spec.precision import Precision

MOE = plannable_spec("mixtral-8x7b")
CARD = load_hardware("rtx4090")
BF16 = DType.BFLOAT16
RATES = accelerator_rates(CARD, BF16)
OPERATIONS = layer_operations(MOE)
MLPS: list[Way] = ["cpu-mlp"]
PRECISION = Precision.uniform(BF16)
SIZES = MixtureBytes.of(MOE, PRECISION)


@given(tokens=st.integers(1, 500), counts=st.lists(st.integers(1, 99), min_size=8, max_size=8))
def test_parts_add_up_to_the_whole(tokens: int, counts: list[int]) -> None:
    use = ExpertUse.of_counts([counts] * MOE.num_layers, MOE)
    whole = MixturePart(MOE, 0, range(8), use, tokens)
    parts = [MixturePart(MOE, 0, ids, use, tokens) for ids in ((0, 3), (1, 2, 4, 5, 6, 7))]
    costs = [part.cost(BF16, RATES) for part in parts]
    assert sum(part.read_elements for part in parts) == pytest.approx(whole.read_elements)
    assert sum(c.compute_s for c in costs) == pytest.approx(whole.cost(BF16, RATES).compute_s)
    assert sum(c.memory_s for c in costs) == pytest.approx(whole.cost(BF16, RATES).memory_s)


@pytest.mark.parametrize("tokens", [1, 7, 300])
def test_all_experts_used_alike_cost_what_the_mixture_costs(tokens: int) -> None:
    all_of_them = MixturePart(MOE, 0, range(8), ExpertUse.uniform(MOE), tokens)
    expected = stage_cost(split_experts(OPERATIONS).mlp.of(OPERATIONS), tokens, BF16, RATES)
    found = all_of_them.cost(BF16, RATES)
    for part in ("compute_s", "memory_s", "launch_s"):
        assert getattr(found, part) == pytest.approx(getattr(expected, part))


@pytest.mark.parametrize("tokens", [1, 8, 300])
def test_a_mixture_of_the_cpu_s_costs_the_same_either_way(tokens: int) -> None:
    times = layer_times(MOE, PRECISION, tokens, CARD)
    apart = split_times(MOE, PRECISION, tokens, CARD, 0, (), ExpertUse.uniform(MOE), SIZES)
    assert not apart.shared
    one_way, other = (
        sweep_s(MLPS * 3, 2, times, split) for split in ({}, dict.fromkeys(range(3), apart))
    )
    assert one_way == pytest.approx(other, rel=0.02)  # one roofline, or one for each part


@pytest.mark.parametrize("resident", [(), (0,), (1, 2, 5)], ids=len)
def test_of_a_mixture_that_comes_only_what_does_not_stay_takes_the_link(
    resident: tuple[int, ...],
) -> None:
    times = layer_times(MOE, PRECISION, 512, CARD)
    apart = split_times(MOE, PRECISION, 512, CARD, 0, resident, ExpertUse.uniform(MOE), SIZES)
    expert = expert_matrix_bytes(MOE, PRECISION)
    kept = len(resident) * expert
    if resident:
        kept += mlp_matrix_bytes(MOE, PRECISION) - 8 * expert
    kept_s = kept / CARD.link.h2d_bytes_per_s
    assert apart.load_s == pytest.approx(times.mlp_load_s - kept_s)
    coming: tuple[Way, ...] = ("loaded-mlp",) * 5
    one_way = sweep_s(coming, 2, times, dict.fromkeys(range(5), apart))
    assert one_way == pytest.approx(sweep_s(coming, 2, times) - 5 * kept_s)
    held = sweep_s(coming[:2], 2, times, dict.fromkeys(range(2), apart))
    assert held == sweep_s(coming[:2], 2, times)  # nothing comes to them any more


def test_both_sides_work_at_once() -> None:
    times = replace(layer_times(MOE, PRECISION, 1, CARD), attention_s=1.0, turn_s=0.5)
    slow_cpu, slow_accelerator = (
        SplitTimes(True, 0.25, accelerator_s, 3.0, 0.125, 0.0) for accelerator_s in (2.0, 7.0)
    )
    assert sweep_s(MLPS, 2, times, {0: slow_cpu}) == 1.25 + 0.125 + 0.5 + 3.0
    assert sweep_s(MLPS, 2, times, {0: slow_accelerator}) == 1.25 + 7.0
    reads = replace(slow_cpu, cpu_read_s=90.0)  # the host's memory bounds them all
    assert sweep_s(MLPS * 2, 2, times, {0: reads, 1: reads}) == 180.0
