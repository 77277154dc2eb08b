"""Layers on the CPU of the paced emulator, in virtual time: the sum of bytes over rates bounds a
step, and what is predicted to be fastest is.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.integration.test_paced_streaming import SMALL, WIDE, token_s

from tandem.cost.rates import accelerator_rates
from tandem.engine.building.paced import PacedEngine, build_paced_core
from tandem.engine.building.paced_machine import PacedOptions
from tandem.plan.binding import LaneBinding
from tandem.plan.program import OpKind, Part
from tandem.plan.sweep_layers import SweepChoice
from tandem.plan.weights import homes_by_layer
from tandem.runtime.paced.ledger import HostTask
from tandem.runtime.paced.virtual import VirtualClock, VirtualPool
from tandem.spec.config import EngineConfig, HostLayers
from tandem.spec.dtype import DType
from tandem.spec.hardware import HardwareSpec
from tandem.spec.layer_operations import layer_operations
from tandem.spec.operations import Stage, default_stages, split_post
from tandem.spec.parameters import layer_matrix_parameters

DTYPE = DType.BFLOAT16
LAYER_BYTES = layer_matrix_parameters(WIDE) * DTYPE.size_bytes
MLP_BYTES = 3 * WIDE.hidden_size * WIDE.intermediate_size * DTYPE.size_bytes
WAYS: tuple[HostLayers, ...] = ("cpu", "stream", "mlp", "auto")
FAST_HOST = replace(SMALL, host=replace(SMALL.host, memory_bandwidth_bytes_per_s=40e9))
OPERATIONS = layer_operations(WIDE)
STAGES: dict[Part, Stage] = dict(
    zip((Part.PRE, Part.NONE, Part.POST), default_stages(OPERATIONS), strict=True)
) | {Part.MLP: split_post(OPERATIONS).mlp}


def stages_s(hardware: HardwareSpec) -> Callable[[HostTask], float]:
    """Stages read their weights at the host's rate and compute at it."""

    def host_s(task: HostTask) -> float:
        op, host = task.entry.op, hardware.host
        if op.kind is not OpKind.STAGE:
            return 1e-5
        operations = STAGES[op.part].of(OPERATIONS)
        tokens = sum(lane.num_tokens for lane in _bindings(task))
        size = sum(each.weight_bytes(DTYPE) for each in operations)
        flops = sum(each.flops(tokens) for each in operations)
        return max(size / host.memory_bandwidth_bytes_per_s, flops / host.flops_per_s)

    return host_s


def build(
    host_layers: HostLayers, hardware: HardwareSpec, strategy: str = "gpu-only"
) -> tuple[PacedEngine, VirtualClock]:
    config = EngineConfig(
        "wide",
        dtype="bfloat16",
        strategy=strategy,
        kv_placement="split" if strategy == "ride-along" else "auto",
        gpu_memory="2GB",
        cpu_memory="5GiB",
        host_layers=host_layers,
        max_num_seqs=64,
        max_num_batched_tokens=128,
    )
    clock = VirtualClock()
    options = PacedOptions(cache_bytes=1 << 16, contention=False)
    engine = build_paced_core(
        config, WIDE, hardware, options, clock=clock, pool=VirtualPool(stages_s(hardware))
    )
    return engine, clock


def _bindings(task: HostTask) -> list[LaneBinding]:
    return [slot.binding for slot in task.entry.program.program.lanes]


def chain_s(engine: PacedEngine, hardware: HardwareSpec, tokens: int) -> float:
    """Every layer's bytes over the rate of what they come through, one after the other."""
    plan = engine.memory.plan
    sweep = SweepChoice.of_plan(plan.weights, plan.cpu_rules).of(tokens)
    loads = sweep.loaded if len(sweep.loaded) > sweep.streamed.slots else ()
    mlps = set(sweep.streamed.mlps)
    loaded = sum(MLP_BYTES if layer in mlps else LAYER_BYTES for layer in loads)
    on_cpu = len(sweep.on_cpu) * LAYER_BYTES + len(sweep.mlp_on_cpu) * MLP_BYTES
    there = len(homes_by_layer(plan.weights)) * LAYER_BYTES - loaded - on_cpu
    return (
        there / accelerator_rates(hardware, DTYPE).bytes_per_s
        + loaded / hardware.link.h2d_bytes_per_s
        + on_cpu / hardware.host.memory_bandwidth_bytes_per_s
    )


@pytest.mark.parametrize("strategy", ["gpu-only", "ride-along"])
@pytest.mark.parametrize("hardware", [SMALL, FAST_HOST], ids=["small", "fast-host"])
@pytest.mark.parametrize("host_layers", WAYS)
def test_a_token_takes_at_most_its_bytes_over_rates(
    host_layers: HostLayers, hardware: HardwareSpec, strategy: str
) -> None:
    engine, clock = build(host_layers, hardware, strategy)
    step_s, _ = token_s(engine, clock)
    assert 0.9 * step_s <= chain_s(engine, hardware, 1)


@pytest.mark.parametrize("requests", [1, 48])
def test_what_is_predicted_to_be_the_fastest_is(requests: int) -> None:
    taken: dict[str, float] = {}
    for way in WAYS:
        engine, clock = build(way, FAST_HOST)
        taken[way] = token_s(engine, clock, requests)[0]
    assert taken["auto"] <= 1.02 * min(taken.values())
    assert (taken["cpu"] < taken["stream"]) == (requests == 1)
    # MLPs alone come too where the CPU would be slower, and about as many bytes
    assert taken["mlp"] < 1.1 * taken["stream"]
