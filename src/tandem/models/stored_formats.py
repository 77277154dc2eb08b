"""How the layers of a checkpoint in a folder are quantized, also by its config.json alone."""

import re
from collections.abc import Mapping
from pathlib import Path

from tandem.models.architecture import load_architecture
from tandem.models.config import read_config
from tandem.models.quantized_checkpoint import read_stored_quantization, stored_formats
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import FUSED_MODULES
from tandem.spec.quantized_maps import map_rows
from tandem.spec.weight_format import WeightFormat

_ANY_TENSORS = {
    "qweight": "I32", "weight_packed": "I32", "weight": "F8_E4M3", "weight_scale": "F32",
    "weight_scale_inv": "F32",
}  # fmt: skip
_LEFT_OUT = ("ignore", "modules_to_not_convert", "ignored_layers")


def folder_formats(
    directory: Path, spec: ModelSpec, *, floats: bool = False
) -> dict[str, WeightFormat]:
    """What holds the layers' quantized maps without loss, by canonical name; empty if nothing is.
    Without weights, all maps are taken to be quantized but those that config.json leaves out.

    Args:
        floats: 8-bit floating point is held so, too; else it is in a wider type, which CPUs read.

    Raises:
        ModelError: quantized in a way that is not supported, or a damaged checkpoint.
    """
    if any(directory.glob("*.safetensors")):
        return stored_formats(directory, spec, floats=floats)
    quantization = read_stored_quantization(directory)
    if quantization is None:
        return {}
    architecture, left_out = load_architecture(spec.architecture), _left_out(directory)
    fused = {part: whole for whole in architecture.fused_modules for part in FUSED_MODULES[whole]}
    layer = next(i for i in range(spec.num_layers) if spec.routed_experts(i) == spec.experts)
    found: dict[str, WeightFormat] = {}
    for name, inputs in map_rows(spec).items():
        tensor = architecture.layer_tensor(layer, f"{fused.get(name, name)}.weight")
        module = tensor.removesuffix(".weight")
        if any(_names(pattern, module) for pattern in left_out):
            continue
        weight = quantization.weight(module, _ANY_TENSORS)
        format = None if weight is None else weight.format(inputs)
        if format is not None and (floats or not format.floats):
            found[name] = format
    return found


def _left_out(directory: Path) -> tuple[str, ...]:
    config = read_config(directory)
    sections = (config.section(key).values for key in ("quantization_config", "compression_config"))
    named = [entry for values in sections for key in _LEFT_OUT for entry in _texts(values, key)]
    return tuple(named)


def _texts(values: Mapping[str, object], key: str) -> list[str]:
    found = values.get(key)
    return [entry for entry in found if isinstance(entry, str)] if isinstance(found, list) else []


def _names(pattern: str, module: str) -> bool:
    """A module, a folder of modules, or an expression."""
    if pattern.startswith("re:"):
        return re.match(pattern[3:], module) is not None
    return module == pattern or f".{pattern}." in f".{module}."
