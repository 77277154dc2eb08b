from dataclasses import replace

import pytest
from tests.fakes.paced import TINY

from tandem.cost.pair_ratios import Cell, compare_cells
from tandem.cost.rates import DeviceRates, LinkRates, accelerator_rates, h2d_rates
from tandem.cost.stage import (
    AttentionWork,
    CostBreakdown,
    attention_cost,
    copy_cost,
    cost_of,
    head_cost,
    stage_cost,
)
from tandem.spec.dtype import DType
from tandem.spec.hardware_file import load_hardware
from tandem.spec.layer_operations import layer_operations
from tandem.spec.model import ExpertSpec
from tandem.spec.operations import default_stages

RATES = DeviceRates(bytes_per_s=1e9, flops_per_s=1e12, kernel_overhead_s=1e-6)


def test_compute_and_memory_overlap_and_launches_add() -> None:
    assert CostBreakdown(3.0, 2.0, 0.5).total_s == 3.5
    cost = cost_of(2e12, 1e9, 3, RATES)
    assert (cost.compute_s, cost.memory_s) == (2.0, 1.0)
    assert cost.launch_s == pytest.approx(3e-6)


def test_a_stage_reads_its_weights_once_and_moves_activations_per_token() -> None:
    operations = layer_operations(TINY)
    _, _, post = default_stages(operations)
    none, one, two = (
        stage_cost(post.of(operations), tokens, DType.FLOAT16, RATES).memory_s
        for tokens in range(3)
    )
    assert none * 1e9 == pytest.approx(2 * (64 * 64 + 3 * 64 * 96 + 64))
    assert two - one == pytest.approx(one - none)
    assert one > none
    cost = stage_cost(post.of(operations), 1, DType.FLOAT16, RATES)
    assert cost.launch_s == pytest.approx(len(post.of(operations)) * 1e-6)


def test_a_stage_becomes_compute_bound_with_tokens() -> None:
    operations = layer_operations(TINY)
    pre, _, _ = default_stages(operations)
    slow = DeviceRates(1e12, 1e9, 0.0)
    one = stage_cost(pre.of(operations), 1, DType.FLOAT16, slow)
    many = stage_cost(pre.of(operations), 100, DType.FLOAT16, slow)
    assert many.total_s == pytest.approx(100 * one.total_s)


def test_a_stage_reads_the_experts_that_its_tokens_go_to() -> None:
    spec = replace(TINY, experts=ExpertSpec(16, 2, 96))
    operations = layer_operations(spec)
    _, _, post = default_stages(operations)
    few, more, all_of_them = (
        stage_cost(post.of(operations), tokens, DType.FLOAT16, RATES) for tokens in (1, 4, 4096)
    )
    expert, rest = 3 * 64 * 96, 64 * 64 + 64 + 16 * 64
    moved = sum(op.activation_elements(1) for op in post.of(operations))
    assert few.memory_s * 1e9 == pytest.approx(2 * (2 * expert + rest + moved))
    touched = 16 * (1 - (14 / 16) ** 4)
    assert more.memory_s * 1e9 == pytest.approx(2 * (touched * expert + rest + 4 * moved))
    assert all_of_them.memory_s * 1e9 == pytest.approx(2 * (16 * expert + rest + 4096 * moved))
    assert all_of_them.compute_s == pytest.approx(4096 * few.compute_s)


def test_attention_is_no_stage_of_its_own_kind() -> None:
    with pytest.raises(ValueError, match="attention_cost"):
        stage_cost(layer_operations(TINY), 1, DType.FLOAT16, RATES)


def test_attention_reads_keys_and_values_once_per_sequence() -> None:
    work = AttentionWork(tokens=4, pairs=4000, keys=1000)
    cost = attention_cost(layer_operations(TINY), work, DType.BFLOAT16, RATES)
    cached = 1000 * 2 * TINY.kv_size * 2
    out = 4 * TINY.q_size * 4
    assert cost.memory_s == pytest.approx((cached + out) / 1e9)
    assert cost.compute_s == pytest.approx(4000 * (4 * TINY.q_size + 5 * TINY.num_heads) / 1e12)


def test_head_and_copy() -> None:
    head = head_cost(TINY, 2, DType.FLOAT32, RATES)
    assert head.compute_s == pytest.approx(2 * 2 * 64 * 128 / 1e12)
    assert copy_cost(5e8, LinkRates(1e9, 0.25)).total_s == 0.75


def test_rates_include_efficiencies() -> None:
    a10g = load_hardware("a10g")
    assert accelerator_rates(a10g, DType.FLOAT16).bytes_per_s == pytest.approx(510e9)
    assert h2d_rates(a10g).bytes_per_s == a10g.link.h2d_bytes_per_s


def test_ratios_off_by_more_than_a_fifth_are_flagged_with_their_bias() -> None:
    real = Cell(load_hardware("a10g"), TINY, DType.BFLOAT16, 100)
    same = compare_cells(real, real)
    assert same
    assert not any(ratio.flagged for ratio in same)
    other = compare_cells(real, Cell(load_hardware("rtx4090"), TINY, DType.BFLOAT16, 100))
    flagged = {ratio.name: ratio for ratio in other if ratio.flagged}
    assert "link to accelerator bandwidth" in flagged
    assert "larger raises the gain" in str(flagged["link to accelerator bandwidth"])
