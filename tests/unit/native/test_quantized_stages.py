"""Stages over quantized weights, on the compiled kernels and in torch, and what they refuse."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tandem.kernels import native
from tandem.models.dummy_weights import fill_dummy_weights
from tandem.models.layer_state import LayerState
from tandem.models.model import Model
from tandem.models.weights import Weights, allocate_weights
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import layer_weights
from tandem.spec.weight_format import WeightFormat

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tandem.kernels import _native
from tandem.kernels.native_linear import Activation, LinearEnd, NativeLinear, linear_into
from tandem.kernels.native_pool import NativePool
from tandem.models.native_stages import NativeStages

SPEC = ModelSpec("llama", 64, 64, 2, 4, 2, 32, 96, 512)
POOL = NativePool(2)


def quantized(spec: ModelSpec, format: WeightFormat) -> Weights:
    names = [w.name.removesuffix(".weight") for w in layer_weights(spec) if w.is_matrix]
    formats = dict.fromkeys(names, format)
    weights = allocate_weights(spec, torch.float32, torch.device("cpu"), quantized=formats)
    fill_dummy_weights(weights, spec, 0, None)
    return weights


def state(tokens: int) -> LayerState:
    torch.manual_seed(tokens)
    return LayerState(torch.arange(tokens), torch.randn(tokens, SPEC.hidden_size))


@pytest.mark.parametrize("tokens", [1, 5, 70])
@pytest.mark.parametrize("format", [WeightFormat(8, 32), WeightFormat(4, 32)])
@pytest.mark.parametrize(
    "spec",
    [
        SPEC,
        replace(SPEC, gated=False, qkv_bias=True, mlp_bias=True),
        replace(SPEC, post_norms=True),
    ],
)
def test_both_ways_mean_the_same(spec: ModelSpec, format: WeightFormat, tokens: int) -> None:
    weights = quantized(spec, format)
    results: list[Tensor] = []
    for stages in (None, NativeStages(spec, weights, POOL)):
        model, found = Model(spec, weights, torch.float32, stages), state(tokens)
        model.run(model.stages(1).pre, 1, found)
        assert found.q is not None
        found.finish_attention(found.q * 0.5)
        model.run(model.stages(1).post, 1, found)
        results.append(found.residual)
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tokens", [1, 5, 70])
def test_every_map_rounds_what_it_is_multiplied_by(tokens: int) -> None:
    weights = quantized(SPEC, WeightFormat(8, 32))
    modules, found = weights.layers[1], state(tokens)
    stages = NativeStages(SPEC, weights, POOL, int8_activations=True)

    def product(name: str, x: Tensor, y: Tensor, end: LinearEnd) -> Tensor:
        weight = modules[name].quantized
        assert weight is not None
        activation = Activation.SILU if end == LinearEnd.GATED else Activation.NONE
        linear_into(
            y, POOL, NativeLinear.quantized(weight), x, end, activation, int8_activations=True
        )
        return y

    def normed(name: str, x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        norm = _native.Norm(modules[name].weight, None, SPEC.norm_eps)
        _native.normalize(POOL.handle, norm, x, y)
        return y

    residual = found.residual.clone()
    qkv = torch.empty(tokens, 8 * SPEC.head_dim)
    product("qkv", normed("attention_norm", residual), qkv, LinearEnd.STORE)
    stages.pre(1, found)
    assert found.q is not None
    assert found.v is not None
    assert torch.equal(found.q.flatten(1), qkv[:, :128])
    assert torch.equal(found.v.flatten(1), qkv[:, 192:])

    attention = torch.randn(tokens, SPEC.num_heads, SPEC.head_dim)
    found.finish_attention(attention)
    stages.post(1, found)
    product("output", attention.flatten(1), residual, LinearEnd.ADD)
    inner = torch.empty(tokens, SPEC.intermediate_size)
    product("gate_up", normed("mlp_norm", residual), inner, LinearEnd.GATED)
    product("down", inner, residual, LinearEnd.ADD)
    assert torch.equal(found.residual, residual)


def test_activations_are_rounded_for_weights_of_8_bits_only() -> None:
    for weights in (quantized(SPEC, WeightFormat(4, 32)), allocate_weights(
        SPEC, torch.float32, torch.device("cpu")
    )):  # fmt: skip
        with pytest.raises(ValueError, match="8 bits only"):
            NativeStages(SPEC, weights, POOL, int8_activations=True)
