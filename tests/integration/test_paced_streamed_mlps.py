"""MLPs in host memory, on the paced emulator in virtual time: a prompt does not wait for the CPU's
arithmetic, and a token is as fast as with all of them on the CPU.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.test_paced_streaming import token_s

from tandem.cost.rates import HOST_OPERATION_S, DeviceRates
from tandem.cost.stage import stage_cost
from tandem.engine.building.paced import PacedEngine, build_paced_core
from tandem.engine.building.paced_machine import PacedOptions
from tandem.engine.sizing.mlp_choice import PlacementTimes
from tandem.models.catalogue import plannable_spec
from tandem.plan.program import OpKind
from tandem.plan.weights import homes_by_layer, streamed_layers
from tandem.runtime.paced.ledger import HostTask
from tandem.runtime.paced.virtual import VirtualClock, VirtualPool
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import DType
from tandem.spec.hardware_file import load_hardware
from tandem.spec.layer_operations import layer_operations
from tandem.spec.model import ModelSpec
from tandem.spec.operations import split_post
from tandem.spec.parameters import mlp_matrix_bytes
from tandem.spec.precision import Precision
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

DENSE = plannable_spec("llama-3.1-8b")
MOE = replace(plannable_spec("qwen3-30b-a3b"), num_layers=12)
CARD = load_hardware("rtx4090")
BF16 = DType.BFLOAT16
TOKENS = 2048
# of a prompt, the time with all MLPs on the CPU over that with steps that choose
GAINS = {("dense", 128): 2.5, ("dense", TOKENS): 35.0, ("moe", 128): 1.1, ("moe", TOKENS): 2.4}
SPECS = {"dense": (DENSE, "8GiB"), "moe": (MOE, "8GiB")}


def build(
    spec: ModelSpec, gpu_memory: str, placement: Path | None
) -> tuple[PacedEngine, VirtualClock]:
    host = CARD.host
    rates = DeviceRates(host.memory_bandwidth_bytes_per_s, host.flops_per_s, HOST_OPERATION_S)
    operations = layer_operations(spec)
    mlp = split_post(operations).mlp.of(operations)

    def host_s(task: HostTask) -> float:
        if task.entry.op.kind is not OpKind.STAGE:
            return 1e-5
        tokens = sum(slot.binding.num_tokens for slot in task.entry.program.program.lanes)
        return stage_cost(mlp, tokens, BF16, rates).total_s

    config = EngineConfig(
        "m",
        dtype="bfloat16",
        gpu_memory=gpu_memory,
        cpu_memory="40GiB",
        host_layers="auto" if placement else "mlp",
        placement=None if placement is None else str(placement),
        max_model_len=4096,
        max_num_seqs=1,
        max_num_batched_tokens=TOKENS,
    )
    clock = VirtualClock()
    options = PacedOptions(cache_bytes=1 << 16, contention=False)
    pool = VirtualPool(host_s)
    return build_paced_core(config, spec, CARD, options, clock=clock, pool=pool), clock


def first_token_s(engine: PacedEngine, clock: VirtualClock, tokens: int) -> float:
    """From a prompt to its first token, of an engine that was idle."""
    params = SamplingParams(max_tokens=1)
    engine.core.add_request(EngineRequest(f"prompt-{tokens}", tuple([7] * tokens), params))
    begin = clock.time_s
    while engine.core.has_work():
        engine.core.step()
    return clock.time_s - begin


@pytest.mark.parametrize("kind", SPECS)
def test_prompts_are_faster_and_tokens_are_not_slower(kind: str, tmp_path: Path) -> None:
    spec, gpu_memory = SPECS[kind]
    after, clock = build(spec, gpu_memory, None)
    plan = after.memory.plan
    homes = homes_by_layer(plan.weights)
    assert set(homes.values()) == {"resident", "host-mlp"}
    runs = [
        {"first_layer": layer, "last_layer": layer, "home": "cpu-mlp"}
        for layer, home in homes.items()
        if home == "host-mlp"
    ]
    path = tmp_path / "placement.json"
    path.write_text(json.dumps({"layers": runs}))
    before, before_clock = build(spec, gpu_memory, path)

    times = PlacementTimes(spec, Precision.uniform(BF16), CARD, 1, TOKENS)
    loads_s = len(streamed_layers(plan.weights).layers) * mlp_matrix_bytes(
        spec, Precision.uniform(BF16)
    ) / CARD.link.h2d_bytes_per_s  # fmt: skip
    for tokens in (128, TOKENS):
        old_s = first_token_s(before, before_clock, tokens)
        new_s = first_token_s(after, clock, tokens)
        print(f"{kind}: a prompt of {tokens} tokens {old_s * 1e3:.0f} ms, now {new_s * 1e3:.0f} ms")
        assert old_s / new_s > GAINS[kind, tokens]
        assert new_s == pytest.approx(times.sweep_s(plan.weights, tokens), rel=0.1)
    assert new_s < 1.3 * loads_s  # the link sets the pace, not the CPU
    old_s, new_s = token_s(before, before_clock)[0], token_s(after, clock)[0]
    print(f"{kind}: a token {old_s * 1e3:.1f} ms, now {new_s * 1e3:.1f} ms")
    assert new_s < 1.02 * old_s
