"""Layers that differ in window and rotation: every step of the engine is still one native call."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.support.engines import model_engine
from tests.support.script import run_all
from tests.support.setups import Setup

from tandem.kernels import native
from tandem.models.dummy_weights import fill_dummy_weights
from tandem.models.model import Model
from tandem.models.weights import allocate_weights
from tandem.spec.dtype import DType
from tandem.spec.kv_type import CodeType, KVType
from tandem.spec.model import ModelSpec, RopeSpec
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tandem.kernels.native_pool import NativePool
from tandem.models.native_stages import NativeStages

SPEC = ModelSpec(
    "gemma3_text",
    64,
    32,
    3,
    4,
    2,
    16,
    48,
    512,
    norm_offset=1.0,
    post_norms=True,
    qk_norm=True,
    attention_soft_cap=2.0,
    windows=(20, 0, 20),
    rope=RopeSpec(1e6),
    local_rope=RopeSpec(),
    dtype=DType.FLOAT32,
)
PROMPTS = ((7,), tuple(range(5, 50)))


def generate(model: Model, setup: Setup) -> list[list[int]]:
    params = SamplingParams(max_tokens=24, temperature=0.0, ignore_eos=True)
    requests = [EngineRequest(str(i), prompt, params) for i, prompt in enumerate(PROMPTS)]
    with model_engine(model, setup) as engine:
        results = run_all(engine.core, requests)
    return [results[request.request_id].token_ids for request in requests]


@pytest.mark.parametrize("kv", [None, CodeType.INT8])
def test_no_stage_runs_by_itself(monkeypatch: pytest.MonkeyPatch, kv: KVType | None) -> None:
    weights = allocate_weights(SPEC, torch.float32, torch.device("cpu"))
    fill_dummy_weights(weights, SPEC, 0, None)
    compiled = Model(SPEC, weights, native=NativeStages(SPEC, weights, NativePool(2)))
    setup = Setup(device_blocks=32, kv=kv)
    expected = generate(Model(SPEC, weights), setup)
    calls: list[int] = []
    whole = NativeStages.run_layers

    def counted(self: NativeStages, *args: Any) -> None:
        calls.append(1)
        whole(self, *args)

    def refused(*_: Any) -> None:
        raise AssertionError("a stage ran by itself")

    monkeypatch.setattr(NativeStages, "run_layers", counted)
    monkeypatch.setattr(NativeStages, "pre", refused)
    monkeypatch.setattr(NativeStages, "post", refused)
    assert generate(compiled, replace(setup, executor="host")) == expected
    assert len(calls) >= 24
