"""Parts of a streamed layer come to the slot of which the layer's stages read them."""

import torch

from tandem.models.weight_layout import LayerLayout, LayerShapes
from tandem.models.weight_stream import WeightStream
from tandem.plan.program import Part
from tandem.plan.sweep_layers import SweepLayers
from tandem.plan.weights import StreamedLayers
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import layer_weights

SPEC = ModelSpec("llama", 8, 16, 3, 4, 2, 4, 24, 64)
CPU = torch.device("cpu")


def test_keys_and_values_maps_come_by_themselves() -> None:
    layout = LayerLayout(LayerShapes(layer_weights(SPEC), torch.float32, {}))
    layers = StreamedLayers((0, 1, 2))
    stream = WeightStream(SweepLayers(layers), dict.fromkeys(layers.layers, layout), CPU)
    for layer, modules in stream.stored.items():
        for name in ("q", "k", "v", "output", "gate", "up", "down"):
            modules[name].weight.fill_(layer)
    stream.prime()
    parts = ((Part.KEYS_VALUES, {"k", "v"}), (Part.QUERIES, {"q"}), (Part.POST, {"output", "down"}))
    came: set[str] = set()
    for part, names in parts:
        stream.load(2, part)  # to where layer 0 was
        came |= names
        here = stream.moving.slots[2][stream.moving.slot_of(2)]
        found = {
            name: float(here[name].weight.unique()) for name in ("q", "k", "v", "output", "down")
        }
        assert found == {name: 2.0 if name in came else 0.0 for name in found}
    assert stream.moving.slot_of(2) == 0
    stream.load(0, Part.KEYS_VALUES)
    assert stream.moving.slot_of(0) == 1
