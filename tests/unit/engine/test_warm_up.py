"""The largest step: it is reached, stays within the prediction, and nothing grows after it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import ReferenceType, ref

import pytest
import torch

from tandem.engine.building import warm_up
from tandem.engine.building.scheduler_options import scheduler_config
from tandem.engine.building.warm_up import measure_workspace, run_largest_steps, warm_up_blocks
from tandem.engine.sizing.capacities import Capacities
from tandem.engine.sizing.memory_plan import MemoryPlan, plan_memory
from tandem.engine.sizing.step_bounds import largest_step
from tandem.memory.workspace import workspace_bytes
from tandem.models.dummy_weights import fill_dummy_weights
from tandem.models.model import Model
from tandem.models.weights import allocate_weights, torch_dtype
from tandem.plan.program import Queue
from tandem.runtime.assemble import Assembled, on_exact_emulator
from tandem.runtime.build_machine import MachineSizes, build_machine
from tandem.runtime.kv_store import KVStore
from tandem.runtime.machine import Machine
from tandem.runtime.running import Running
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import DType
from tandem.spec.errors import EngineDeadError
from tandem.spec.model import ModelSpec, RopeSpec
from tandem.spec.precision import Precision
from tandem.spec.units import MIB

WIDE = ModelSpec(
    architecture="llama",
    vocab_size=300,
    hidden_size=32,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    intermediate_size=128,
    max_positions=256,
    rope=RopeSpec(),
    dtype=DType.FLOAT32,
)
SPECS = {
    "wide mlp": WIDE,
    "wide attention": replace(WIDE, intermediate_size=16, num_heads=16),
    "wide head": replace(WIDE, vocab_size=20_000),
    "qk norm": replace(WIDE, architecture="qwen3", qk_norm=True, intermediate_size=16),
}
CONFIG = EngineConfig(
    "m", max_num_seqs=5, max_num_batched_tokens=100, block_size=16, max_model_len=200
)


def planned(spec: ModelSpec, config: EngineConfig, dtype: DType) -> MemoryPlan:
    capacities = Capacities(64 * MIB, 64 * MIB, real=False)
    return plan_memory(config, spec, Precision.uniform(dtype), capacities)


def warm(
    spec: ModelSpec,
    config: EngineConfig,
    dtype: DType = DType.FLOAT32,
    workspace: Callable[[int], int] = lambda size: size,
    seed: int = 0,
    memory: MemoryPlan | None = None,
) -> tuple[Assembled, int]:
    """Runs the largest steps; returns the executor and what was set aside for activations."""
    memory = memory or planned(spec, config, dtype)
    weights = allocate_weights(spec, torch_dtype(dtype), torch.device("cpu"))
    fill_dummy_weights(weights, spec, 0, None)
    size = workspace(memory.workspace_bytes)
    plan = memory.plan
    sizes = MachineSizes(
        memory.page, plan.device_blocks, plan.host_blocks, config.max_num_seqs, workspace_bytes=size
    )
    assembled = on_exact_emulator(Model(spec, weights), sizes, seed)
    limits = scheduler_config(plan, config, spec)
    blocks = warm_up_blocks(limits, memory)
    ended = run_largest_steps(assembled.executor, spec.vocab_size, limits, plan.strategy, blocks)
    assert ended == 2 * config.max_num_seqs
    return assembled, size


@pytest.mark.parametrize(
    "strategy", ["gpu-only", "ride-along", "rendezvous", "asymmetric", "symmetric"]
)
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_the_prediction_is_above_the_peak_but_not_far(
    spec: ModelSpec, dtype: DType, strategy: str
) -> None:
    assembled, predicted = warm(spec, replace(CONFIG, strategy=strategy), dtype)
    peak = assembled.machine.arena.peak_bytes
    assert peak <= predicted <= 1.15 * peak
    assert assembled.machine.arena.live_bytes < peak


@pytest.mark.parametrize(
    "strategy", ["gpu-only", "ride-along", "rendezvous", "asymmetric", "symmetric"]
)
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_a_prediction_that_is_too_low_fails(spec: ModelSpec, strategy: str) -> None:
    config = replace(CONFIG, strategy=strategy)
    assembled, _ = warm(spec, config)
    needed = assembled.machine.arena.peak_bytes
    with pytest.raises(EngineDeadError, match="ArenaOverflowError"):
        warm(spec, config, workspace=lambda size: needed - 1)
    assert warm(spec, config, workspace=lambda size: needed)[1] == needed


@pytest.mark.parametrize("strategy", ["rendezvous", "rendezvous-ahead"])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_a_plan_s_logits_have_room_for_one_cohort_beside_the_accelerator_s_rows(
    spec: ModelSpec, strategy: str
) -> None:
    config = replace(CONFIG, strategy=strategy, max_num_seqs=24)
    usual = planned(spec, config, DType.FLOAT32)
    plan = replace(
        usual.plan,
        strategy=strategy,
        max_host_seqs=16,
        max_device_seqs=8,
        max_cohorts=4,
        max_cohort_rows=4,
    )
    assert plan.max_sampled_rows == 13
    capacities = Capacities(64 * MIB, 64 * MIB, real=False)
    precision = Precision.uniform(DType.FLOAT32)
    memory = plan_memory(config, spec, precision, capacities, planned=plan)
    assert memory.workspace_bytes < usual.workspace_bytes
    assembled, predicted = warm(spec, config, memory=memory)
    assert assembled.machine.arena.peak_bytes <= predicted


def test_cohorts_need_memory_on_top_of_the_main_lane_s_tokens() -> None:
    config = replace(CONFIG, strategy="rendezvous")
    step = largest_step(config, Capacities(MIB, MIB, real=False))
    assert step.cohort_tokens == config.max_num_seqs
    without = workspace_bytes(WIDE, DType.FLOAT32, replace(step, cohort_tokens=0))
    with pytest.raises(EngineDeadError, match="ArenaOverflowError"):
        warm(WIDE, config, workspace=lambda size: without)


def test_on_a_gpu_the_cpu_begins_when_its_inputs_have_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Copies down are on their way when they are submitted, and one thread does all."""
    under_way, early = list[Queue](), list[Queue]()
    memory_of = list[ReferenceType[KVStore]]()

    def built(*arguments: Any) -> Machine:
        machine = build_machine(*arguments)
        memory_of.append(ref(machine.kv))
        run = machine.runner.run

        def noted(running: Running) -> None:
            queue = running.op.queue
            if queue is Queue.D2H:
                under_way.append(queue)
            elif queue is Queue.CPU:
                early.extend(under_way)
            run(running)

        machine.runner.run = noted
        return machine

    def ended(device: torch.device) -> int:
        assert [each() for each in memory_of] == [None], "pages beside the engine's own"
        return 10**9

    monkeypatch.setattr(warm_up, "build_machine", built)
    monkeypatch.setattr(warm_up, "pin", lambda tensor: lambda: None)
    monkeypatch.setattr(warm_up, "start_peak", lambda device: 100)
    monkeypatch.setattr(warm_up, "end_peak", ended)
    monkeypatch.setattr(warm_up, "await_all", lambda device: under_way.clear())
    config = replace(CONFIG, strategy="ride-along")
    memory = planned(WIDE, config, DType.FLOAT32)
    weights = allocate_weights(WIDE, torch.float32, torch.device("cpu"))
    fill_dummy_weights(weights, WIDE, 0, None)
    limits = scheduler_config(memory.plan, config, WIDE)
    assert 0 < measure_workspace(Model(WIDE, weights), limits, memory) < 10**9
    assert under_way == early == []
