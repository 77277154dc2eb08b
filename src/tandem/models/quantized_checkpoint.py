"""Which maps of a checkpoint are quantized, and what that means for a model in memory."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tandem.models.architecture import Architecture, load_architecture
from tandem.models.checkpoint import Checkpoint, StoredTensor, read_checkpoint
from tandem.models.config import read_config
from tandem.quant.formats.ignored_parts import IGNORED_PARTS
from tandem.quant.formats.stored_weight import StoredQuantization, StoredWeight
from tandem.spec.errors import ModelError
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import FUSED_MODULES, layer_weights
from tandem.spec.weight_format import WeightFormat


@dataclass(frozen=True, slots=True)
class StoredMap:
    """A quantized linear map in a checkpoint.

    Attributes:
        module: its name there.
        tensors: by what their names end in.
    """

    module: str
    weight: StoredWeight
    tensors: Mapping[str, StoredTensor]


def read_stored_quantization(directory: Path) -> StoredQuantization | None:
    """What the `config.json` in `directory` says about quantization; None if nothing.

    Raises:
        ModelError: a format, or a variety of one, that is not supported.
    """
    config = read_config(directory)
    places = (config, config.section("text_config"))
    keys = ("quantization_config", "compression_config")
    found = [place.section(key).values for place in places for key in keys]
    values = next((section for section in found if section), None)
    if values is None:
        return None
    from tandem.quant.formats.registry import read_quantization

    try:
        return read_quantization(values)
    except ModelError as error:
        raise config.error(error.message) from error


def named_with_prefix(checkpoint: Checkpoint, prefix: str) -> dict[str, StoredTensor]:
    """Tensors by full name; checkpoints of a bare decoder lack the prefix."""
    tensors = checkpoint.tensors
    if any(name.startswith(prefix) for name in tensors):
        return dict(tensors)
    return {
        name if name.startswith("lm_head.") else prefix + name: tensor
        for name, tensor in tensors.items()
    }


def find_maps(
    tensors: Mapping[str, StoredTensor], quantization: StoredQuantization | None
) -> dict[str, StoredMap]:
    """The quantized maps among a checkpoint's tensors, by the checkpoint's name.

    Raises:
        ModelError: one is quantized in a way that is not supported.
    """
    if quantization is None:
        return {}
    by_module: dict[str, dict[str, StoredTensor]] = defaultdict(dict)
    for name, tensor in tensors.items():
        module, _, part = name.rpartition(".")
        by_module[module][part] = tensor
    maps: dict[str, StoredMap] = {}
    for module, parts in by_module.items():
        weight = quantization.weight(module, {part: t.dtype for part, t in parts.items()})
        if weight is not None:
            used = {p: t for p, t in parts.items() if p != "bias" and p not in IGNORED_PARTS}
            maps[module] = StoredMap(module, weight, used)
    return maps


def stored_formats(
    directory: Path, spec: ModelSpec, *, floats: bool = False
) -> dict[str, WeightFormat]:
    """What holds the layers' quantized maps without loss, by canonical name.

    Maps that only wider floating point holds are left out, and so are those that are not quantized.

    Args:
        floats: maps of e4m3 floats count, too, where all layers have them alike; else they are left
            out.

    Raises:
        ModelError: a damaged checkpoint, one that is quantized in a way that is not supported, or
            one whose layers differ in what is quantized.
    """
    quantization = read_stored_quantization(directory)
    if quantization is None:
        return {}
    architecture = load_architecture(spec.architecture)
    tensors = named_with_prefix(read_checkpoint(directory), architecture.prefix)
    maps = find_maps(tensors, quantization)
    if not maps:
        raise ModelError(
            f"{directory}: config.json says that weights are quantized ({quantization.label}), but "
            "no tensor is; remove its quantization_config"
        )
    found: dict[str, WeightFormat | None] = {}
    layers = [
        _layer_formats(spec, architecture, tensors, maps, layer) for layer in range(spec.num_layers)
    ]
    wide = _wide(layers, floats=floats)
    for layer, its_formats in enumerate(layers):
        for name, stored in its_formats.items():
            format = None if name in wide else stored
            if found.setdefault(name, format) != format:
                raise _unlike(directory, f"'{name}' of layers 0 and {layer}")
    formats = {name: format for name, format in found.items() if format is not None}
    for owner in {name.rpartition(".")[0] for name in formats}:
        scope = f"{owner}." if owner else ""
        for parts in FUSED_MODULES.values():
            names = [scope + part for part in parts]
            if len({formats.get(name) for name in names}) > 1:
                raise _unlike(directory, f"{' and '.join(names)} of a layer")
    return formats


def _wide(layers: Sequence[Mapping[str, WeightFormat | None]], *, floats: bool) -> set[str]:
    """Maps that become wider floating point: those of floats that are not alike in all layers, or
    in all that lies in one tensor; all of floats unless `floats`.
    """
    kinds: dict[str, set[WeightFormat | None]] = defaultdict(set)
    for layer in layers:
        for name, format in layer.items():
            kinds[name].add(format)
    narrow = {name for name, its in kinds.items() if any(f and f.floats for f in its)}
    if not floats:
        return narrow
    wide = {name for name in narrow if len(kinds[name]) > 1}
    for name in narrow:
        owner, dot, own_name = name.rpartition(".")
        for parts in FUSED_MODULES.values():
            names = [owner + dot + part for part in parts]
            if own_name in parts and any(kinds.get(each) != kinds[name] for each in names):
                wide.add(name)
    return wide


def _layer_formats(
    spec: ModelSpec,
    architecture: Architecture,
    tensors: Mapping[str, StoredTensor],
    maps: Mapping[str, StoredMap],
    layer: int,
) -> dict[str, WeightFormat | None]:
    """Of the maps that are there; the loader names the others."""
    whole = {p: f for f in architecture.fused_modules for p in FUSED_MODULES[f]}
    formats: dict[str, WeightFormat | None] = {}
    for shape in layer_weights(spec, layer):
        if shape.is_matrix:
            name = shape.name.removesuffix(".weight")
            tensor = architecture.layer_tensor(layer, f"{whole.get(name, name)}.weight")
            found = maps.get(tensor.removesuffix(".weight"))
            if found is not None:
                formats[name] = found.weight.format(shape.shape[1])
            elif tensor in tensors:
                formats[name] = None
    return formats


def _unlike(directory: Path, which: str) -> ModelError:
    return ModelError(
        f"{directory}: {which} are not quantized alike, which is not supported; use a checkpoint "
        "whose layers are all quantized alike, or --quantization none, which dequantizes it"
    )
