"""A layer whose MLP is divided by columns is the same layer, in an order in which parts come."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from tandem.models.divided_layer import COLUMNS, DividedLayer
from tandem.models.layer_state import LayerState
from tandem.models.torch_layers import TorchLayers
from tandem.models.weight_layout import LayerLayout, LayerShapes
from tandem.models.weight_stream import WeightStream
from tandem.plan.program import Part
from tandem.plan.sweep_layers import SweepLayers
from tandem.plan.weights import StreamedLayers
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import layer_weights, mlp_weights

GATED = ModelSpec("llama", 8, 16, 3, 4, 2, 4, 24, 64)
MODELS = {
    "gated": GATED,
    "gated-bias": replace(GATED, mlp_bias=True),
    "plain": replace(GATED, gated=False, activation="relu", mlp_bias=True, norm="layer"),
    "post-norms": replace(GATED, post_norms=True),
}
CPU = torch.device("cpu")
TOKENS, SIZE, NUMBER = 5, 24, 7


def stream_of(spec: ModelSpec, *, mlps: bool = False) -> WeightStream:
    """Three layers, filled as a checkpoint is, and then divided."""
    weights = mlp_weights(spec) if mlps else layer_weights(spec)
    shapes = LayerShapes(weights, torch.float32, {})
    layers = StreamedLayers((0, 1, 2), mlps=(0, 1, 2) if mlps else ())
    stream = WeightStream(
        SweepLayers(layers),
        dict.fromkeys(layers.layers, LayerLayout(shapes)),
        CPU,
        divided=dict.fromkeys(layers.layers, DividedLayer(shapes, NUMBER)),
    )
    generator = torch.Generator().manual_seed(3)
    for modules in stream.stored.values():
        for affine in modules.values():
            affine.weight.copy_(torch.randn(affine.weight.shape, generator=generator))
            if affine.bias is not None:
                affine.bias.copy_(torch.randn(affine.bias.shape, generator=generator))
    return stream


@pytest.mark.parametrize("name", MODELS)
def test_both_parts_add_up_to_the_layer(name: str) -> None:
    spec = MODELS[name]
    stream = stream_of(spec)
    whole = {
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
    stream.divide()
    stream.prime()
    here = {n: stream.moving.slots[n][stream.moving.slot_of(n)] for n in (0, 1)}
    divided, there = (TorchLayers(spec, found, CPU, torch.float32) for found in (here, whole))
    on_host = TorchLayers(spec, stream.columns(), CPU, torch.float32)
    for layer in (0, 1):
        start = torch.randn(TOKENS, spec.hidden_size)
        states = [LayerState(torch.arange(TOKENS), start.clone()) for _ in range(4)]
        expected, over_prompts, passed, sent = states
        there.mlp(layer, expected)
        divided.mlp(layer, over_prompts)
        assert_close(over_prompts.residual, expected.residual)
        own = divided.other_columns(layer, passed)
        on_host.columns(layer, sent)
        assert_close(passed.residual, start)
        divided.add_branch(layer, own + sent.residual, passed)
        assert_close(passed.residual, expected.residual)
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
