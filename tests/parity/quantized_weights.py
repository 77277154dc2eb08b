"""A tiny model that can be quantized in groups of any size, and transformers with those numbers."""

from collections.abc import Collection, Mapping
from copy import deepcopy
from pathlib import Path

import torch
from tests.parity.tiny_models import Case, build, moe, rotary
from torch import Tensor
from transformers import LlamaConfig, PreTrainedModel

from tandem.models.config import read_model_spec
from tandem.quant.quantize import quantize
from tandem.spec.dtype import DType
from tandem.spec.parameters import layer_weights
from tandem.spec.precision import Precision
from tandem.spec.weight_format import WeightFormat

CASE = Case(
    "llama-quantized",
    rotary(LlamaConfig, 128, 4, 2, 32, intermediate_size=256, num_hidden_layers=3),
)
MIXTURE = Case(
    "qwen3moe-quantized", moe(128, 4, 2, 32, moe_intermediate_size=128, num_hidden_layers=3)
)
MAPS = tuple(f"self_attn.{p}_proj" for p in "qkvo") + tuple(
    f"mlp.{p}_proj" for p in ("gate", "up", "down")
)


def precision(directory: Path, format: WeightFormat) -> Precision:
    """Float32 but for the layers' linear maps."""
    weights = layer_weights(read_model_spec(directory))
    names = [w.name.removesuffix(".weight") for w in weights if w.is_matrix]
    names = [name for name in names if name != "router"]
    kind = DType.FLOAT32
    return Precision(kind, kind, kind, dict.fromkeys(names, format))


def with_rounded_weights(
    directory: Path, format: WeightFormat, case: Case = CASE
) -> PreTrainedModel:
    """The case, saved to `directory` as it is, and returned with quantized numbers in it."""
    model = build(case, directory)
    rounded = {n: quantize(w, format).dequantize() for n, w in layer_maps(model).items()}
    return with_weights(model, rounded)


def with_rounded_experts(directory: Path, format: WeightFormat) -> PreTrainedModel:
    """The same of `MIXTURE`, whose experts lie stacked in transformers' parameters."""
    model = build(MIXTURE, directory)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.removesuffix(".weight").endswith(MAPS):
                weight.copy_(quantize(weight, format).dequantize())
            elif "experts" in name:
                for expert in weight:
                    expert.copy_(quantize(expert, format).dequantize())
    return model


def with_rounded_layers(
    plain: PreTrainedModel, format: WeightFormat, layers: Collection[int]
) -> PreTrainedModel:
    """A copy with quantized numbers in the linear maps of some layers, experts' included."""
    model = deepcopy(plain)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if not name.startswith("model.layers.") or int(name.split(".")[2]) not in layers:
                continue
            if name.removesuffix(".weight").endswith(MAPS):
                weight.copy_(quantize(weight, format).dequantize())
            elif "experts" in name:
                for expert in weight:
                    expert.copy_(quantize(expert, format).dequantize())
    return model


def layer_maps(model: PreTrainedModel) -> dict[str, Tensor]:
    """Weights of the layers' linear maps, by the checkpoint's name of the map."""
    found = {n.removesuffix(".weight"): w.detach() for n, w in model.named_parameters()}
    return {name: weight for name, weight in found.items() if name.endswith(MAPS)}


def with_weights(model: PreTrainedModel, weights: Mapping[str, Tensor]) -> PreTrainedModel:
    """The model with the weights of some maps replaced."""
    with torch.no_grad():
        for name, weight in weights.items():
            model.get_parameter(f"{name}.weight").copy_(weight)
    return model
