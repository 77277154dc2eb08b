"""Stages on the compiled kernels against torch."""

from dataclasses import replace

import pytest
import torch

from tandem.kernels import native
from tandem.memory.workspace import LargestStep, StepMemory, workspace_bytes
from tandem.models.layer_state import LayerState
from tandem.spec.dtype import DType
from tandem.spec.model import ExpertSpec, ModelSpec, RopeSpec
from tandem.spec.parameters import mlp_weights

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tests.unit.native.stage_case import MIXED, POOL, SPEC, models, state

from tandem.models.native_stages import NativeLayers


@pytest.mark.parametrize("tokens", [1, 5, 70])
@pytest.mark.parametrize(
    "spec",
    [
        SPEC,
        replace(SPEC, qk_norm=False, gated=False, activation="relu", norm="layer"),
        replace(SPEC, post_norms=True, norm_offset=1.0, activation="gelu_tanh"),
        replace(SPEC, rope=None),
        replace(SPEC, windows=(0, 4), local_rope=RopeSpec(300.0, amplitude=1.5)),
        replace(SPEC, experts=ExpertSpec(7, 3, 20)),
        replace(SPEC, experts=ExpertSpec(5, 1, 33, renormalized=False), activation="gelu"),
    ],
)
def test_stages_equal_torch_s(spec: ModelSpec, tokens: int) -> None:
    results: list[LayerState] = []
    for model in models(spec):
        found = state(tokens)
        model.run(model.stages(1).pre, 1, found)
        assert found.q is not None
        found.finish_attention(found.q * 0.5)
        model.run(model.stages(1).post, 1, found)
        assert found.attention is None
        results.append(found)
    torch.testing.assert_close(results[0].residual, results[1].residual, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tokens", [1, 70])
@pytest.mark.parametrize(
    "spec",
    [
        SPEC,
        replace(SPEC, gated=False, activation="relu", norm="layer", mlp_bias=True),
        replace(SPEC, post_norms=True, norm_offset=1.0, activation="gelu_tanh"),
        replace(SPEC, experts=ExpertSpec(7, 3, 20)),
    ],
)
def test_an_mlp_alone_is_the_end_of_its_layer(spec: ModelSpec, tokens: int) -> None:
    in_torch, compiled = models(spec)
    names = {weight.name.rpartition(".")[0] for weight in mlp_weights(spec, 1)}
    mlp = {n: a for n, a in compiled.weights.layers[1].items() if n in names or "gate_up" in n}
    alone = NativeLayers(spec, {}, POOL, {1: mlp})
    whole, parts = state(tokens), state(tokens)
    attention = torch.randn(tokens, spec.num_heads, spec.head_dim)
    for found in (whole, parts):
        found.attention = attention.clone()
    compiled.run(compiled.stages(1).post, 1, whole)
    in_torch.run(in_torch.output_stage(1), 1, parts)
    alone.mlp(1, parts)
    torch.testing.assert_close(whole.residual, parts.residual, rtol=1e-5, atol=1e-5)
    assert torch.equal(alone.expert_hits.counts, compiled.expert_hits.counts)


def test_both_count_how_often_tokens_go_to_an_expert() -> None:
    counted: list[torch.Tensor] = []
    for model in models(MIXED):
        for tokens in (5, 70):
            found = state(tokens)
            model.run(model.stages(1).pre, 1, found)
            assert found.q is not None
            found.finish_attention(found.q * 0.5)
            model.run(model.stages(1).post, 1, found)
        counted.append(model.expert_hits.counts)
    assert torch.equal(counted[0], counted[1])
    assert counted[0][0].sum() == 0  # that layer has no experts
    assert counted[0][1].sum() == 75 * 2
    model.expert_hits.clear()
    assert model.expert_hits.by_layer() == ((0,) * 6,) * 2


@pytest.mark.parametrize("tokens", [1, 7, 300])
@pytest.mark.parametrize("spec", [SPEC, MIXED, replace(SPEC, experts=ExpertSpec(64, 8, 200))])
def test_memory_of_a_call_is_within_the_predicted_workspace(spec: ModelSpec, tokens: int) -> None:
    _, model = models(spec)
    stages = model.native
    assert stages is not None
    taken = tokens * stages.scratch_token_bytes + stages.scratch_bytes
    assert taken <= workspace_bytes(spec, DType.FLOAT32, LargestStep(tokens, 1))
    kept = StepMemory(spec, DType.FLOAT32).kernel_buffer_token_bytes
    assert stages.scratch_token_bytes <= kept < 4 * stages.scratch_token_bytes


def test_the_head_norms_and_multiplies() -> None:
    hidden = torch.randn(3, SPEC.hidden_size)
    in_torch, compiled = models()
    torch.testing.assert_close(
        compiled.logits(hidden), in_torch.logits(hidden), rtol=1e-5, atol=1e-5
    )
