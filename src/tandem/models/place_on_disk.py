"""Says what layers on disk are read from: the checkpoint as it is, or a spool made at the start."""

from collections.abc import Callable, Collection
from pathlib import Path

import torch
from torch import Tensor

from tandem.models.architecture import Architecture
from tandem.models.checkpoint import Checkpoint, StoredTensor
from tandem.models.checkpoint_loader import load_layer, stored_sources
from tandem.models.checkpoint_sources import Source
from tandem.models.disk_extents import Extent, LayerExtents, merged
from tandem.models.disk_weights import DiskWeights
from tandem.models.dummy_weights import fill_dummy
from tandem.models.shard_header import FilePlace, tensor_places
from tandem.models.stripe_shares import stripe_shares
from tandem.models.weight_layout import Modules
from tandem.models.weight_spool import WeightSpool
from tandem.models.weights import Parameter, layer_weights_of
from tandem.quant.formats.stored_weight import StoredQuantization
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec

_ELEMENT_TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}

Fill = Callable[[int, list[Parameter]], None]
"""Fills a layer's matrices."""


def open_stored(
    disk: DiskWeights,
    architecture: Architecture,
    checkpoint: Checkpoint,
    quantization: StoredQuantization | None = None,
) -> None:
    """Read layers from a checkpoint that has been checked: from its own files where they hold
    every matrix as it is wanted, else, and if any is quantized, from a spool.

    Raises:
        ConfigError: direct reads are refused, or a spool cannot be written.
        ModelError: a file is missing or damaged.
    """
    stored = stored_sources(checkpoint, architecture, quantization)
    fused, places = architecture.fused_modules, _Places()
    extents: dict[int, LayerExtents] = {}
    for layer in disk.placement.layers:
        matrices = _matrices(layer, disk.stored[layer], fused)
        named = [(p, stored[architecture.layer_tensor(layer, p.name)]) for p in matrices]
        if all(_is_as_stored(parameter, source) for parameter, source in named):
            extents[layer] = merged(places.extent(p.tensor, s.first) for p, s in named)

    def fill(layer: int, matrices: list[Parameter]) -> None:
        load_layer(matrices, layer, architecture, stored)

    _open(disk, extents, fill, fused)


def _is_as_stored(parameter: Parameter, source: Source) -> bool:
    if parameter.quantized is not None or source.map is not None:
        return False
    return _ELEMENT_TYPES.get(source.first.dtype) == parameter.tensor.dtype


def open_dummy(disk: DiskWeights, spec: ModelSpec, seed: int) -> None:
    """Read layers from a spool of dummy weights.

    Raises:
        ConfigError: direct reads are refused, or the spool cannot be written.
    """

    def fill(layer: int, matrices: list[Parameter]) -> None:
        del layer  # each knows its own
        for parameter in matrices:
            fill_dummy(parameter, spec, seed)

    _open(disk, {}, fill)


def _open(
    disk: DiskWeights,
    extents: dict[int, LayerExtents],
    fill: Fill,
    fused: Collection[str] = (),
) -> None:
    """Write what has no extents to a spool, then begin to read."""
    missing = [layer for layer in disk.placement.layers if layer not in extents]
    if not missing:
        disk.open(extents)
        return
    if disk.placement.copies:
        raise ConfigError(
            "layers on disk are not in the checkpoint's files as the kernels read them, but "
            "converted into --spool-dir, and --disk-copies hold the same files; name a folder on "
            "each disk with --spool-dir instead, or use the checkpoint's --dtype and no "
            "--quantization",
            param="disk_copies",
        )
    layout = disk.layout
    folders = disk.placement.spools
    shares = stripe_shares(folders, disk.placement.host_io, len(missing) * layout.size_bytes)
    spool = WeightSpool(folders, layout.size_bytes, len(missing), shares)
    try:
        memory = layout.allocate(torch.device("cpu"))
        modules = layout.modules(memory, layout.allocate_vectors(torch.device("meta")))
        for layer in missing:
            fill(layer, _matrices(layer, modules, fused))
            extents[layer] = spool.append(memory)
        del memory, modules
        disk.open(extents, stripes=len(folders))
    finally:
        spool.close()  # the reader has a descriptor of its own


def _matrices(layer: int, modules: Modules, fused: Collection[str]) -> list[Parameter]:
    return [p for p in layer_weights_of(layer, modules, fused) if p.tensor.dim() > 1]


class _Places:
    """Where tensors lie in their files; each file's header is read once."""

    def __init__(self) -> None:
        self._files: dict[Path, dict[str, FilePlace]] = {}

    def extent(self, tensor: Tensor, source: StoredTensor) -> Extent:
        """The bytes of a stored tensor, and where in its layer they belong."""
        if source.file not in self._files:
            self._files[source.file] = tensor_places(source.file)
        place = self._files[source.file][source.name]
        target = int(tensor.storage_offset()) * tensor.element_size()
        return Extent(source.file, place.offset, place.size_bytes, target)
