"""A mixture that does not fit, on the paced emulator in virtual time: what it gives a token that
the experts used most are the accelerator's, and a prompt that the others come there.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.test_paced_streamed_mlps import first_token_s
from tests.integration.test_paced_streaming import token_s

from tandem.cost.expert_use import ExpertUse
from tandem.cost.rates import HOST_OPERATION_S, DeviceRates
from tandem.cost.split_mixture import MixturePart, route_cost
from tandem.engine.building.paced import PacedEngine, build_paced_core
from tandem.engine.building.paced_machine import PacedOptions
from tandem.engine.sizing.expert_hits_file import write_expert_hits
from tandem.engine.sizing.mlp_choice import PlacementTimes
from tandem.models.catalogue import plannable_spec
from tandem.plan.program import OpKind
from tandem.plan.weights import homes_by_layer, resident_experts
from tandem.runtime.paced.ledger import HostTask
from tandem.runtime.paced.virtual import VirtualClock, VirtualPool
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import DType
from tandem.spec.hardware_file import load_hardware
from tandem.spec.precision import Precision

MOE = replace(plannable_spec("qwen3-30b-a3b"), num_layers=12)
CARD = load_hardware("rtx4090")
BF16 = DType.BFLOAT16
COUNT = 128
# the k-th most used expert of a layer is used 1 / k^0.7 as often as the first
COUNTS = [
    [int(1e6 / (1 + (expert - layer) % COUNT) ** 0.7) for expert in range(COUNT)]
    for layer in range(MOE.num_layers)
]
USE = ExpertUse.of_counts(COUNTS, MOE)


def build(config: EngineConfig, use: ExpertUse = USE) -> tuple[PacedEngine, VirtualClock]:
    host = DeviceRates(
        CARD.host.memory_bandwidth_bytes_per_s, CARD.host.flops_per_s, HOST_OPERATION_S
    )
    resident: dict[int, tuple[int, ...]] = {}

    def host_s(task: HostTask) -> float:
        op = task.entry.op
        if op.kind is not OpKind.STAGE:
            return 1e-5
        tokens = sum(slot.binding.num_tokens for slot in task.entry.program.program.lanes)
        there = resident.get(op.layer, ())
        others = [expert for expert in range(COUNT) if expert not in there]
        routed = 0.0 if there else route_cost(MOE, tokens, BF16, host).total_s
        return routed + MixturePart(MOE, op.layer, others, use, tokens).cost(BF16, host).total_s

    clock = VirtualClock()
    options = PacedOptions(cache_bytes=1 << 16, contention=False, expert_use=use)
    pool = VirtualPool(host_s)
    engine = build_paced_core(config, MOE, CARD, options, clock=clock, pool=pool)
    resident.update(resident_experts(engine.memory.plan.weights))
    return engine, clock


def test_prompts_do_not_wait_for_the_cpu_where_its_experts_come(tmp_path: Path) -> None:
    """Beside the same experts on the CPU always, and whole mixtures that come, of equal use."""
    use = ExpertUse.uniform(MOE)
    asked = EngineConfig(
        "qwen",
        gpu_memory="8GiB",
        cpu_memory="20GiB",
        max_model_len=4096,
        max_num_seqs=8,
        max_num_batched_tokens=2048,
    )
    after, clock = build(asked, use)
    weights = after.memory.plan.weights
    single, homes = resident_experts(weights), homes_by_layer(weights)
    assert single
    assert set(homes.values()) <= {"resident", "host-mlp"}
    runs = [
        {"first_layer": n, "last_layer": n, "home": "cpu-mlp", "experts": list(single.get(n, ()))}
        for n, home in homes.items()
        if home == "host-mlp"
    ]
    placement = tmp_path / "placement.json"
    placement.write_text(json.dumps({"layers": runs, "embedding": "host"}))
    others = {
        "the CPU always": build(replace(asked, placement=str(placement)), use),
        "whole mixtures": build(replace(asked, host_layers="mlp"), use),
    }
    times = PlacementTimes(MOE, Precision.uniform(BF16), CARD, 8, 2048, use)
    for tokens, least in ((128, (1.0, 1.0)), (2048, (2.0, 1.0))):
        new_s = first_token_s(after, clock, tokens)
        assert new_s == pytest.approx(times.sweep_s(weights, tokens), rel=0.1)
        for (name, engine), least_gain in zip(others.items(), least, strict=True):
            old_s = first_token_s(*engine, tokens)
            print(f"a prompt of {tokens} tokens: {name} {old_s * 1e3:.0f} ms, {new_s * 1e3:.0f} ms")
            assert old_s / new_s > least_gain
    for requests, least in ((1, (0.98, 1.0)), (8, (0.98, 1.05))):
        new_s, _ = token_s(after, clock, requests)
        assert new_s == pytest.approx(times.sweep_s(weights, requests), rel=0.1)
        for (name, engine), least_gain in zip(others.items(), least, strict=True):
            old_s, _ = token_s(*engine, requests)
            print(f"{requests} at once: {name} {old_s * 1e3:.1f} ms, {new_s * 1e3:.1f} ms")
            assert old_s / new_s > least_gain


@pytest.mark.parametrize(("requests", "least_gain"), [(1, 1.4), (8, 1.2)])
def test_experts_by_counts_make_tokens_faster(
    requests: int, least_gain: float, tmp_path: Path
) -> None:
    path = tmp_path / "hits.json"
    write_expert_hits(path, "qwen", COUNTS)
    config = EngineConfig(
        "qwen",
        gpu_memory="4GiB",
        cpu_memory="20GiB",
        host_layers="mlp",
        max_model_len=2048,
        max_num_seqs=requests,
        max_num_batched_tokens=256,
    )
    taken: list[float] = []
    for each in (config, replace(config, expert_hits=str(path))):
        engine, clock = build(each)
        weights = engine.memory.plan.weights
        assert bool(resident_experts(weights)) == (each is not config)
        step_s, _ = token_s(engine, clock, requests)
        times = PlacementTimes(MOE, Precision.uniform(BF16), CARD, requests, 256, USE)
        taken.append(step_s)
        assert step_s == pytest.approx(times.sweep_s(weights, requests), rel=0.1)
    assert taken[0] / taken[1] > least_gain
