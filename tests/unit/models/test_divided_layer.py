"""A layer whose MLP is divided by columns is the same layer, in an order in which parts come."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from tandem.kernels import native
from tandem.models.divided_layer import COLUMNS, DividedLayer
from tandem.models.host_layers import HostLayers
from tandem.models.layer_state import LayerState
from tandem.models.torch_layers import TorchLayers
from tandem.models.weight_layout import LayerLayout, LayerShapes, Modules
from tandem.models.weight_stream import WeightStream
from tandem.plan.program import Part
from tandem.plan.sweep_layers import SweepLayers
from tandem.plan.weights import StreamedLayers
from tandem.runtime.lane_states import qkv_of
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import layer_weights, mlp_weights

GATED = ModelSpec("llama", 8, 16, 3, 4, 2, 4, 24, 64)
MODELS = {
    "gated": GATED,
    "gated-bias": replace(GATED, mlp_bias=True),
    "plain": replace(GATED, gated=False, activation="relu", mlp_bias=True, norm="layer"),
    "post-norms": replace(GATED, post_norms=True),
    "attention-bias": replace(GATED, qkv_bias=True, output_bias=True, qk_norm=True),
}
CPU = torch.device("cpu")
TOKENS, SIZE, NUMBER = 5, 24, 7


def stream_of(spec: ModelSpec, *, mlps: bool = False, maps: bool = False) -> WeightStream:
    """Three layers, filled as a checkpoint is, and then divided."""
    weights = mlp_weights(spec) if mlps else layer_weights(spec)
    shapes = LayerShapes(weights, torch.float32, {})
    layers = StreamedLayers((0, 1, 2), mlps=(0, 1, 2) if mlps else ())
    stream = WeightStream(
        SweepLayers(layers),
        dict.fromkeys(layers.layers, LayerLayout(shapes)),
        CPU,
        divided=dict.fromkeys(layers.layers, DividedLayer(shapes, NUMBER, attention_maps=maps)),
    )
    generator = torch.Generator().manual_seed(3)
    for modules in stream.stored.values():
        for affine in modules.values():
            affine.weight.copy_(torch.randn(affine.weight.shape, generator=generator))
            if affine.bias is not None:
                affine.bias.copy_(torch.randn(affine.bias.shape, generator=generator))
    return stream


def undivided(stream: WeightStream) -> dict[int, Modules]:
    """Copies of all layers."""
    return {
        layer: {
            module: replace(
                each,
                weight=each.weight.clone(),
                bias=None if each.bias is None else each.bias.clone(),
            )
            for module, each in modules.items()
        }
        for layer, modules in stream.stored.items()
    }


@pytest.mark.parametrize("name", MODELS)
def test_both_parts_add_up_to_the_layer(name: str) -> None:
    spec = MODELS[name]
    stream = stream_of(spec)
    whole = undivided(stream)
    stream.divide()
    stream.prime()
    here = {n: stream.moving.slots[n][stream.moving.slot_of(n)] for n in (0, 1)}
    divided, there = (TorchLayers(spec, found, CPU, torch.float32) for found in (here, whole))
    on_host = TorchLayers(spec, stream.columns(), CPU, torch.float32)
    generator = torch.Generator().manual_seed(5)
    # sums of numbers around 100, in another order
    near = partial(assert_close, rtol=1e-5, atol=1e-4)
    for layer in (0, 1):
        start = torch.randn(TOKENS, spec.hidden_size, generator=generator)
        states = [LayerState(torch.arange(TOKENS), start.clone()) for _ in range(4)]
        expected, over_prompts, passed, sent = states
        there.mlp(layer, expected)
        divided.mlp(layer, over_prompts)
        near(over_prompts.residual, expected.residual)
        own = divided.other_columns(layer, passed)
        on_host.columns(layer, sent)
        assert_close(passed.residual, start)
        divided.add_branch(layer, own + sent.residual, passed)
        near(passed.residual, expected.residual)
        assert not torch.allclose(own, torch.zeros_like(own))
        assert not torch.allclose(sent.residual, torch.zeros_like(own))


@pytest.mark.parametrize("mlps", [False, True])
def test_a_pass_brings_all_but_the_cpu_s_columns_and_prompts_those(mlps: bool) -> None:
    stream = stream_of(GATED, mlps=mlps)
    stream.divide()
    stream.prime()
    (came,) = stream.places(2, Part.COLUMNS)
    (whole,) = stream.places(2, Part.NONE)
    (left_out,) = stream.places(1, Part.CPU_COLUMNS)
    assert left_out.nbytes == 3 * NUMBER * GATED.hidden_size * 4
    assert came.nbytes + left_out.nbytes == whole.nbytes
    stream.load(2, Part.COLUMNS)  # to where layer 0 was
    here, stored = stream.moving.slots[2][0], stream.columns()[2]
    names = {name for name, each in here.items() if each.weight.ndim > 1}
    mine = {name for name in names if name.startswith(COLUMNS)}
    assert {name.removeprefix(COLUMNS) for name in mine} == {"gate", "up", "gate_up", "down"}
    for name in names - mine:
        assert_close(here[name].weight, stored[name].weight)
    for name in mine:
        assert not torch.equal(here[name].weight, stored[name].weight)
    stream.load(2, Part.CPU_COLUMNS)
    for name in names:
        assert_close(here[name].weight, stored[name].weight)
    assert stream.moving.slot_of(2) == 0
    stream.load(0)  # the other slot's turn, whatever was completed
    assert stream.moving.slot_of(0) == 1


@pytest.mark.parametrize("kernels", ["torch", "compiled"])
@pytest.mark.parametrize("name", MODELS)
def test_attention_s_maps_are_there_on_the_cpu_and_for_prompts(name: str, kernels: str) -> None:
    """Before attention, after it, and the sum at the end of the layer, on either side."""
    spec = MODELS[name]
    stream = stream_of(spec, maps=True)
    there = TorchLayers(spec, undivided(stream), CPU, torch.float32)
    stream.divide()
    stream.prime()
    here = {n: stream.moving.slots[n][stream.moving.slot_of(n)] for n in (0, 1)}
    accelerator = TorchLayers(spec, here, CPU, torch.float32)
    for layer in (0, 1):
        on_host = host_layers_of(spec, stream, kernels)
        start = torch.randn(TOKENS, spec.hidden_size)
        attention = torch.randn(TOKENS, spec.num_heads, spec.head_dim)
        expected, over_prompts, sent = (
            LayerState(torch.arange(TOKENS), start.clone()) for _ in range(3)
        )
        for layers, state in ((there, expected), (accelerator, over_prompts), (on_host, sent)):
            layers.pre(layer, state)
        for ours, theirs in zip(qkv_of(sent), qkv_of(expected), strict=True):
            assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
        for state in (expected, over_prompts, sent):
            state.finish_attention(attention.clone())
        there.post(layer, expected)
        accelerator.post(layer, over_prompts)
        # sums in another order, here and below
        assert_close(over_prompts.residual, expected.residual, rtol=1e-4, atol=1e-4)
        on_host.output(layer, sent)
        own = accelerator.other_columns(
            layer, LayerState(torch.arange(TOKENS), sent.residual.clone())
        )
        mine = LayerState(torch.arange(TOKENS), sent.residual.clone())
        on_host.columns(layer, mine)
        on_host.add_branch(layer, own + mine.residual, sent)
        assert_close(sent.residual, expected.residual, rtol=1e-4, atol=1e-4)


def host_layers_of(spec: ModelSpec, stream: WeightStream, kernels: str) -> HostLayers:
    """The CPU's maths over what lies in host memory."""
    if kernels == "torch":
        return TorchLayers(spec, stream.columns(), CPU, torch.float32)
    if not native.available():
        pytest.skip(native.unavailable_message())
    from tandem.kernels.native_pool import NativePool
    from tandem.models.native_stages import NativeLayers

    return NativeLayers(spec, {}, NativePool(1), columns=stream.columns())


def test_a_pass_brings_neither_attention_s_maps_nor_the_cpu_s_columns() -> None:
    stream = stream_of(GATED, maps=True)
    stream.divide()
    stream.prime()
    (came,) = stream.places(2, Part.COLUMNS)
    (left_out,) = stream.places(1, Part.CPU_COLUMNS)
    spec = GATED
    maps = 2 * spec.q_size + 2 * spec.kv_size
    assert left_out.nbytes == (3 * NUMBER + maps) * spec.hidden_size * 4
    assert came.nbytes == 3 * (SIZE - NUMBER) * spec.hidden_size * 4
    stream.load(2, Part.COLUMNS)
    here, stored = stream.moving.slots[2][0], stream.columns()[2]
    assert_close(here["gate_up"].weight, stored["gate_up"].weight)
    assert not torch.equal(here["qkv"].weight, stored["qkv"].weight)
    stream.load(2, Part.CPU_COLUMNS)
    for name in ("qkv", "output", "gate_up", f"{COLUMNS}down"):
        assert_close(here[name].weight, stored[name].weight)
