"""What is charged for an operation is what it really allocates, or a little more."""

from collections import defaultdict
from dataclasses import replace

import pytest
import torch
from tests.support.allocations import Allocations
from tests.support.engines import model_engine
from tests.support.script import run_all
from tests.support.setups import Setup

from tandem.memory.workspace import StepMemory
from tandem.models.dummy_weights import fill_dummy_weights
from tandem.models.host_layers import host_layers
from tandem.models.model import Model
from tandem.models.weights import allocate_weights, torch_dtype
from tandem.plan.program import OpKind, Part, Queue
from tandem.plan.sweep_layers import SweepChoice
from tandem.plan.weights import Home
from tandem.runtime.op_memory import OpMemory
from tandem.runtime.running import Running
from tandem.spec.dtype import DType
from tandem.spec.model import ExpertSpec, ModelSpec, RopeSpec
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

LLAMA = ModelSpec("llama", 3000, 96, 2, 12, 4, 16, 256, 512, rope=RopeSpec())
OPT = replace(
    LLAMA,
    architecture="opt",
    norm="layer",
    activation="relu",
    gated=False,
    qkv_bias=True,
    output_bias=True,
    mlp_bias=True,
    rope=None,
    position_offset=2,
    intermediate_size=40,
)
MIXTURE = replace(LLAMA, experts=ExpertSpec(6, 2, 160))
SPECS = {
    "llama": LLAMA,
    "narrow mlp": replace(LLAMA, intermediate_size=16),
    "wide residual": replace(LLAMA, hidden_size=512),
    "qwen3": replace(LLAMA, architecture="qwen3", qk_norm=True, num_heads=24, intermediate_size=16),
    "opt": OPT,
    "gemma3": replace(
        LLAMA,
        architecture="gemma3",
        qk_norm=True,
        post_norms=True,
        norm_offset=1.0,
        embedding_scale=9.0,
        attention_soft_cap=3.0,
        logit_soft_cap=4.0,
        windows=(5, 0),
        local_rope=RopeSpec(500.0),
    ),
}
# share of a charge that is seen to be allocated where they come closest
LEAST = {"pre": 0.7, "post": 0.6, "output": 0.5, "head": 0.99, "sample": 0.5}
# what a norm takes inside itself is charged but not seen; with a narrow MLP it is the most
LEAST_NARROW = LEAST | {"post": 0.15}
MLP_APART: tuple[tuple[int, Home], ...] = ((1, "cpu-mlp"),)
GREEDY = SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True)
SAMPLINGS = (
    GREEDY,
    replace(GREEDY, logprobs=20),
    replace(GREEDY, temperature=1.0, top_p=0.9),
    replace(GREEDY, temperature=1.0, top_k=50, min_p=0.1, repetition_penalty=1.2, logprobs=3),
)


def model(spec: ModelSpec, dtype: DType, layers: SweepChoice) -> Model:
    spec = replace(spec, dtype=dtype)
    weights = allocate_weights(
        spec, torch_dtype(dtype), torch.device("cpu"), layers.usual, experts=layers.experts
    )
    fill_dummy_weights(weights, spec, 0, None)
    return Model(spec, weights, host=host_layers(spec, weights, (), torch_dtype(dtype), None))


def name_of(running: Running) -> str | None:
    op = running.op
    if op.part in (Part.PRE, Part.POST, Part.OUTPUT, Part.ROUTE, Part.EXPERTS, Part.HEAD):
        if op.queue is not Queue.ACCEL or op.kind is not OpKind.STAGE:
            return None
        return op.part.value
    return "sample" if op.kind is OpKind.SAMPLE else None


@pytest.mark.parametrize("strategy", ["gpu-only", "rendezvous"])
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_stages_and_sampling_stay_within_their_charge(
    spec: ModelSpec, dtype: DType, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow = spec.gated and spec.intermediate_size < spec.hidden_size
    expected = LEAST_NARROW if narrow else LEAST
    check_charges(spec, dtype, strategy, MLP_APART, (), expected, monkeypatch)


@pytest.mark.parametrize("strategy", ["gpu-only", "rendezvous"])
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16])
def test_split_mixtures_stay_within_their_charge(
    dtype: DType, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    experts = ((1, (0, 1, 2, 3, 4)),)
    least = {"route": 0.15, "experts": 0.7}  # of a norm, see above
    check_charges(MIXTURE, dtype, strategy, MLP_APART, experts, least, monkeypatch)


def check_charges(
    spec: ModelSpec,
    dtype: DType,
    strategy: str,
    homes: tuple[tuple[int, Home], ...],
    experts: tuple[tuple[int, tuple[int, ...]], ...],
    expected: dict[str, float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shares: dict[str, list[float]] = defaultdict(list)
    setup = Setup(
        strategy=strategy,
        executor="exact",
        device_blocks=64,
        host_blocks=64,
        kv_placement="auto",
        homes=homes,
        experts=experts,
    )
    if strategy == "rendezvous":
        setup = replace(setup, kv_placement="split")
    with model_engine(model(spec, dtype, setup.layers), setup) as engine:
        machine = engine.machine
        charge = OpMemory(StepMemory(spec, dtype), machine.buffers, "cpu")
        run = machine.runner.run

        def watched(running: Running) -> None:
            name = name_of(running)
            charged = charge(running)
            with Allocations() as seen:
                run(running)
            if name is not None:
                # ids, masks and indices of a few bytes per row are left out of the charge
                small = 4096 if name == "sample" else 0
                assert seen.peak_bytes <= charged + small, (str(running), seen.peak_bytes, charged)
                shares[name].append(seen.peak_bytes / charged if charged else 1.0)

        monkeypatch.setattr(machine.runner, "run", watched)
        requests = [
            EngineRequest(str(i), tuple(range(1, 20 + 9 * i)), params)
            for i, params in enumerate(SAMPLINGS)
        ]
        run_all(engine.core, requests)
    for name, least in expected.items():
        assert max(shares[name]) >= least, (name, max(shares[name]))
