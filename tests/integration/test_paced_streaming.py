"""Streamed weights on the paced emulator, in virtual time: the link sets the pace, nothing else."""

from dataclasses import replace

import pytest
from tests.fakes.paced import TINY

from tandem.cost.rates import accelerator_rates
from tandem.engine.building.paced import PacedEngine, build_paced_core
from tandem.engine.building.paced_machine import PacedOptions
from tandem.plan.weights import streamed_layers
from tandem.runtime.paced.ledger import HostTask
from tandem.runtime.paced.virtual import VirtualClock, VirtualPool
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import DType
from tandem.spec.hardware_file import load_hardware
from tandem.spec.model import ExpertSpec, ModelSpec
from tandem.spec.parameters import layer_matrix_parameters
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

SMALL = load_hardware("small")
WIDE = replace(
    TINY,
    hidden_size=4096,
    num_layers=8,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    intermediate_size=14336,
)
LAYER_S = layer_matrix_parameters(WIDE) * DType.BFLOAT16.size_bytes / SMALL.link.h2d_bytes_per_s


def build(
    gpu_memory: str, strategy: str = "gpu-only", spec: ModelSpec = WIDE
) -> tuple[PacedEngine, VirtualClock]:
    def host_s(task: HostTask) -> float:
        return 1e-3 if task.entry.op.kind.value == "attend" else 1e-5

    config = EngineConfig(
        "wide",
        dtype="bfloat16",
        strategy=strategy,
        kv_placement="split" if strategy == "ride-along" else "auto",
        gpu_memory=gpu_memory,
        cpu_memory="5GiB",
        host_layers="stream",
        max_num_seqs=8,
        max_num_batched_tokens=64,
    )
    clock = VirtualClock()
    engine = build_paced_core(
        config, spec, SMALL, PacedOptions(cache_bytes=1 << 16), clock=clock,
        pool=VirtualPool(host_s),
    )  # fmt: skip
    return engine, clock


def token_s(engine: PacedEngine, clock: VirtualClock, requests: int = 1) -> tuple[float, float]:
    """Time per step of a steady decode, and the share in which weights were on their way."""
    for number in range(requests):
        params = SamplingParams(max_tokens=40)
        engine.core.add_request(EngineRequest(f"{requests}-{number}", tuple(range(1, 30)), params))
    before = engine.core.stats().generated_tokens
    while engine.core.stats().generated_tokens < before + 10 * requests:
        engine.core.step()
    engine.executor.begin_window()
    begin, tokens = clock.time_s, engine.core.stats().generated_tokens
    while engine.core.stats().generated_tokens < tokens + 20 * requests:
        engine.core.step()
    took_s = (clock.time_s - begin) / 20
    report = engine.executor.report()
    while engine.core.has_work():
        engine.core.step()
    return took_s, report.weights_busy


@pytest.mark.parametrize("strategy", ["gpu-only", "ride-along"])
@pytest.mark.parametrize("gpu_memory", ["1200MB", "2GB", "2900MB"])
def test_a_step_takes_as_long_as_its_bytes_on_the_link(gpu_memory: str, strategy: str) -> None:
    engine, clock = build(gpu_memory, strategy)
    streamed = len(streamed_layers(engine.memory.plan.weights).layers)
    assert 0 < streamed <= 8
    bound_s = streamed * LAYER_S
    for requests in (1, 4):
        step_s, busy = token_s(engine, clock, requests)
        assert bound_s <= step_s * 1.0001
        assert bound_s >= 0.97 * step_s
        assert busy == pytest.approx(1.0, abs=0.03)


def test_what_fits_is_not_streamed() -> None:
    engine, clock = build("5GB")
    assert not streamed_layers(engine.memory.plan.weights).layers
    assert token_s(engine, clock)[0] < LAYER_S


def test_experts_that_no_token_goes_to_are_read_on_the_link_only() -> None:
    routed = replace(WIDE, experts=ExpertSpec(8, 2, 14336 // 8))  # weighs as much, and the router
    layer_s = layer_matrix_parameters(routed) * DType.BFLOAT16.size_bytes
    layer_s /= SMALL.link.h2d_bytes_per_s
    streamed_s, _ = token_s(*build("1200MB", spec=routed))
    streamed = len(streamed_layers(build("1200MB", spec=routed)[0].memory.plan.weights).layers)
    assert streamed_s == pytest.approx(streamed * layer_s, rel=0.03)

    resident_s, dense_s = (token_s(*build("5GB", spec=spec))[0] for spec in (routed, WIDE))
    unread = WIDE.num_layers * 3 * 4096 * 14336 * DType.BFLOAT16.size_bytes * (1 - 2 / 8)
    saved_s = unread / accelerator_rates(SMALL, DType.BFLOAT16).bytes_per_s
    assert dense_s - resident_s == pytest.approx(saved_s, rel=0.05)
