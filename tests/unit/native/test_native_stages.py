"""Stages and whole layers on the compiled kernels against torch, and what they refuse."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tandem.kernels import native
from tandem.models.dummy_weights import fill_dummy_weights
from tandem.models.layer_state import LayerState
from tandem.models.model import Model
from tandem.models.weights import allocate_weights
from tandem.plan.binding import TierAttention
from tandem.spec.model import ModelSpec, RopeSpec

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tandem.kernels import _native
from tandem.kernels.native_attention import NativeBatch
from tandem.kernels.native_linear import Activation, NativeLinear
from tandem.kernels.native_pages import append_now
from tandem.kernels.native_pool import NativePool
from tandem.kernels.pages import PageShape
from tandem.models.native_stages import NativeStages

SPEC = ModelSpec("llama", 64, 24, 2, 6, 2, 8, 40, 512, qk_norm=True, rope=RopeSpec())
POOL = NativePool(2)


def models(spec: ModelSpec = SPEC, dtype: torch.dtype = torch.bfloat16) -> tuple[Model, Model]:
    """In torch and compiled, over the same weights."""
    weights = allocate_weights(spec, dtype, torch.device("cpu"))
    fill_dummy_weights(weights, spec, 0, None)
    for parameter in weights.parameters():
        if "norm" in parameter.name:  # made the identity, which would hide a forgotten one
            parameter.tensor.add_(torch.rand(parameter.tensor.shape) - 0.5)
    stages = NativeStages(spec, weights, POOL)
    in_torch = Model(spec, weights, torch.float32)
    return in_torch, Model(spec, weights, torch.float32, stages)


def state(tokens: int = 5) -> LayerState:
    torch.manual_seed(tokens)
    return LayerState(torch.arange(tokens) + 3, torch.randn(tokens, SPEC.hidden_size))


@pytest.mark.parametrize("tokens", [1, 5, 70])
@pytest.mark.parametrize(
    "spec",
    [
        SPEC,
        replace(SPEC, qk_norm=False, gated=False, activation="relu", norm="layer"),
        replace(SPEC, post_norms=True, norm_offset=1.0, activation="gelu_tanh"),
        replace(SPEC, rope=None),
        replace(SPEC, windows=(0, 4), local_rope=RopeSpec(300.0, amplitude=1.5)),
    ],
)
def test_stages_equal_torch_s(spec: ModelSpec, tokens: int) -> None:
    results: list[LayerState] = []
    for model in models(spec):
        found = state(tokens)
        model.run(model.stages.pre, 1, found)
        assert found.q is not None
        found.finish_attention(found.q * 0.5)
        model.run(model.stages.post, 1, found)
        assert found.attention is None
        results.append(found)
    torch.testing.assert_close(results[0].residual, results[1].residual, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "spec",
    [
        SPEC,
        replace(
            SPEC, post_norms=True, attention_soft_cap=0.5, windows=(4, 0), local_rope=RopeSpec(9.0)
        ),
    ],
)
def test_a_layer_is_its_stages_and_their_attention(spec: ModelSpec) -> None:
    _, model = models(spec)
    assert model.native is not None
    tokens, shape = 7, PageShape(SPEC.num_kv_heads, 4, SPEC.head_dim)
    attention = TierAttention(
        token_index=None,
        query_start=np.array([0, 3, tokens], np.int32),
        num_decode=0,
        positions=np.array([0, 1, 2, 5, 6, 7, 8], np.int32),
        block_table=np.array([[4, 0, 0], [1, 3, 0]], np.int32),
        block_index=None,
    )
    slots = torch.tensor([16, 17, 18, 13, 14, 15, 0])
    window, cap = spec.layer_windows[0], spec.attention_soft_cap
    batch = NativeBatch.from_binding(attention, shape, SPEC.num_heads, 2, window)
    pages = torch.randn(5, 2, SPEC.num_kv_heads, 4, SPEC.head_dim)
    ours, theirs = pages.clone(), pages.clone()
    whole, parts = state(tokens), state(tokens)

    assert isinstance(batch.plan, _native.AttentionPlan)
    model.native.run_layer(0, whole, ours, slots, batch.plan)
    model.run(model.stages.pre, 0, parts)
    assert parts.q is not None
    assert parts.k is not None
    assert parts.v is not None
    append_now(POOL, theirs, parts.k, parts.v, slots)
    out, lse = torch.empty(tokens, SPEC.num_heads, SPEC.head_dim), torch.empty(tokens, 6)
    scale = SPEC.attention_scale
    _native.attention(
        POOL.handle, batch.plan, parts.q, theirs, out, lse, scale, cap, POOL.isa
    ).run()
    parts.finish_attention(out)
    model.run(model.stages.post, 0, parts)

    assert torch.equal(ours, theirs)
    assert not torch.equal(ours, pages)
    assert torch.equal(whole.residual, parts.residual)


def test_the_head_norms_and_multiplies() -> None:
    hidden = torch.randn(3, SPEC.hidden_size)
    in_torch, compiled = models()
    torch.testing.assert_close(
        compiled.logits(hidden), in_torch.logits(hidden), rtol=1e-5, atol=1e-5
    )


def test_parts_that_do_not_fit_are_refused() -> None:
    norm = _native.Norm(torch.ones(8), None, 1e-5)
    square = NativeLinear.of(torch.ones(8, 8)).handle
    parts: dict[str, Any] = {
        "heads": 2,
        "kv_heads": 1,
        "head_dim": 4,
        "attention_norm": norm,
        "qkv": NativeLinear.of(torch.ones(16, 8)).handle,
        "query_norm": None,
        "key_norm": None,
        "output": square,
        "post_attention_norm": None,
        "mlp_norm": norm,
        "up": NativeLinear.of(torch.ones(16, 8)).handle,
        "down": square,
        "post_mlp_norm": norm,
        "activation": Activation.SILU,
        "gated": True,
    }
    layer = _native.Layer(**parts)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"heads": 3}, "qkv must be 20 x 8, not 16 x 8"),
        ({"heads": 0}, "a layer needs heads"),
        ({"gated": False}, "up must be 8 x 8, not 16 x 8"),
        ({"mlp_norm": _native.Norm(torch.ones(4), None, 0.0)}, "mlp_norm must have the size 8"),
        (
            {"post_attention_norm": _native.Norm(torch.ones(4), None, 0.0)},
            "post_attention_norm must",
        ),
        ({"post_mlp_norm": _native.Norm(torch.ones(4), None, 0.0)}, "post_mlp_norm must have"),
        ({"query_norm": norm}, "query_norm must have the size 4"),
        ({"output": NativeLinear.of(torch.ones(8, 4)).handle}, "output must be 8 x 8"),
    ]
    for wrong, message in refused:
        with pytest.raises(ValueError, match=message):
            _native.Layer(**parts | wrong)
    x, angle, qkv = torch.ones(2, 8), torch.ones(2, 4), torch.ones(2, 16)
    for arguments, message in (
        ((x.double(), None, None, qkv), "residual must be float32"),
        ((x[:, :4], None, None, qkv), "residual must be contiguous"),
        ((x[:0], None, None, qkv[:0]), "residual must have tokens"),
        ((x, angle, None, qkv), "cos and sin go together"),
        ((x, angle[:1], angle, qkv), "cos must have the shape"),
        ((x, angle, angle, qkv[:, :8]), "qkv must have the shape"),
    ):
        with pytest.raises(ValueError, match=message):
            layer.pre(POOL.handle, POOL.isa, *arguments)
    with pytest.raises(ValueError, match="attention must have the shape"):
        layer.post(POOL.handle, POOL.isa, x[:1], x)
