"""How long sweeps take, against sums by hand."""

from dataclasses import replace

import pytest

from tandem.cost.sweep_time import LayerTimes, Way, layer_times, sweep_s
from tandem.spec.dtype import DType
from tandem.spec.hardware_file import load_hardware
from tandem.spec.model import ExpertSpec, ModelSpec, RopeSpec
from tandem.spec.parameters import layer_matrix_parameters
from tandem.spec.precision import Precision

TIMES = LayerTimes(
    accelerator_s=1.0,
    cpu_s=10.0,
    load_s=20.0,
    queries_s=0.5,
    turn_s=0.25,
    host_read_s=2.0,
    cpu_read_s=2.0,
    attention_s=0.4,
    mlp_cpu_s=6.0,
    mlp_read_s=1.5,
    mlp_load_s=12.0,
    mlp_host_read_s=1.8,
)


@pytest.mark.parametrize(
    ("ways", "expected_s"),
    [
        (["resident"] * 4, 4.0),
        (["resident", "cpu", "cpu", "resident"], 2 + 2 * 10.5 + 0.25),
        (["cpu", "resident", "cpu"], 2 * 10.75 + 1),
        (["resident", "cpu-mlp", "cpu-mlp"], 1 + 2 * (0.4 + 0.25 + 6)),
        (["cpu-mlp", "cpu"], 0.4 + 0.25 + 6 + 10.5),  # the residual is there already
        (["loaded", "loaded", "resident"], 3.0),  # they stay in their slots
        (["loaded"] * 4, 4 * 20.0),
        (["loaded", "cpu"] * 4, 4 * 20.0),  # loads cover the CPU's work
        (["loaded", "cpu", "cpu"] * 4, 8 * 10.5 + 4 * 0.25 + 4),  # the CPU's work covers loads
        (["loaded-mlp"] * 2 + ["resident"], 3.0),
        (["loaded-mlp"] * 4, 4 * 12.0),
        (["loaded-mlp"] * 2 + ["cpu-mlp"] * 2, 2 + 2 * (0.4 + 0.25 + 6)),  # a round stays
        (["loaded-mlp", "cpu-mlp"] * 4, 4 * 12.0),
        (["loaded-mlp", "loaded"] * 2, 2 * (20 + 12.0)),
    ],
)
def test_a_chain_beside_which_loads_run(ways: list[Way], expected_s: float) -> None:
    assert sweep_s(ways, 2, TIMES) == pytest.approx(expected_s, rel=0.03)


@pytest.mark.parametrize(
    ("ways", "read_s", "expected_s"),
    [
        (["read-cpu"] * 4, 30.0, 4 * 30.0),  # the disk never rests
        (["read-cpu"] * 4, 1.0, 4 * 10.5 + 0.25),  # reads beside the CPU's work
        (["read-cpu", "resident", "cpu"] * 2, 30.0, 2 * 30.0),
        (["read-cpu", "cpu", "resident"] * 2, 12.0, 2 * (2 * 10.5 + 0.25 + 1)),
        (["read-cpu", "loaded"] * 4, 30.0, 4 * 30.0),  # the link beside the disk
        (["read-cpu"], 30.0, 30.0 + 10.75),  # nothing else to do while it comes
        (["read", "loaded", "loaded", "loaded"], 30.0, 4 * 20.0),
        (["read", "read-cpu"] * 4, 30.0, 8 * 30.0),  # whoever computes them
        (["read", "read-cpu"] * 4, 1.0, 4 * 21.0),  # slots are given back in turn
    ],
)
def test_a_chain_beside_which_layers_are_read(
    ways: list[Way], read_s: float, expected_s: float
) -> None:
    times = replace(TIMES, read_s=read_s)
    assert sweep_s(ways, 2, times) == pytest.approx(expected_s, rel=0.03)


def test_link_and_cores_share_the_memory_of_the_host() -> None:
    slow = LayerTimes(1.0, 10.0, 20.0, 0.0, 0.0, host_read_s=9.0, cpu_read_s=9.5, mlp_read_s=5.0)
    ways: list[Way] = ["loaded", "cpu", "cpu"] * 4
    assert sweep_s(ways, 2, slow) == pytest.approx(4 * 9.0 + 8 * 9.5)
    ways = ["loaded", "cpu-mlp"] * 4
    slow = replace(slow, load_s=1.0)
    assert sweep_s(ways, 2, slow) == pytest.approx(4 * 9.0 + 4 * 5.0)
    ways = ["loaded-mlp", "cpu-mlp"] * 4
    slow = replace(slow, mlp_host_read_s=8.0)
    assert sweep_s(ways, 2, slow) == pytest.approx(4 * 8.0 + 4 * 5.0)


def test_the_cpu_reads_the_experts_that_are_needed_and_the_link_brings_all() -> None:
    spec = ModelSpec("qwen3_moe", 100, 512, 4, 8, 2, 64, 256, 512, rope=RopeSpec())
    spec = replace(spec, experts=ExpertSpec(64, 4, 256))
    hardware = load_hardware("rtx4090")
    times = layer_times(spec, Precision.uniform(DType.BFLOAT16), 1, hardware)
    rate = hardware.host.memory_bandwidth_bytes_per_s
    assert times.host_read_s == pytest.approx(layer_matrix_parameters(spec) * 2 / rate)
    expert_s = 3 * 512 * 256 * 2 / rate
    assert times.mlp_read_s == pytest.approx(4 * expert_s, rel=0.05)  # and the router
    assert times.mlp_read_s < times.cpu_read_s < times.host_read_s / 5
    assert times.mlp_cpu_s + times.attention_s < times.cpu_s
    assert times.mlp_host_read_s == pytest.approx(64 * expert_s, rel=0.05)
    assert times.mlp_load_s / times.load_s == pytest.approx(
        times.mlp_host_read_s / times.host_read_s, rel=0.05
    )
