"""Fills a model's weights from a checkpoint, one file at a time.

Names, shapes and types are checked over all files before the first byte is copied. Each tensor is
then read from its mapped file straight into its place, converted on the way, and the file's pages
are given back, so memory beyond the weights themselves stays within a few megabytes; or a matrix,
where it is quantized or dequantized.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tandem.models.architecture import Architecture
from tandem.models.checkpoint import Checkpoint, listed, open_shard
from tandem.models.checkpoint_sources import Source, find_sources
from tandem.models.mapped_pages import forget_pages
from tandem.models.quantized_checkpoint import named_with_prefix
from tandem.models.weight_filling import RangeError, fill
from tandem.models.weights import Parameter, Weights
from tandem.quant.formats.ignored_parts import IGNORED_PARTS
from tandem.quant.formats.stored_weight import StoredQuantization
from tandem.spec.errors import ModelError

_PIECE_BYTES = 8 << 20

# Called with bytes done, bytes in total, and the name of the tensor just finished.
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class _Copy:
    source: Source
    target: Parameter


def load_checkpoint(
    weights: Weights,
    architecture: Architecture,
    checkpoint: Checkpoint,
    progress: Progress | None = None,
    quantization: StoredQuantization | None = None,
) -> None:
    """Copy every tensor of `checkpoint` into `weights`, but those that have no memory there.

    Args:
        quantization: what config.json says about it.

    Raises:
        ModelError: tensors missing, unexpected, misshapen, not representable, or a damaged file.
    """
    targets = checkpoint_parameters(weights, architecture)
    stored = stored_sources(checkpoint, architecture, quantization, targets)
    head = architecture.outer_tensor("head.weight")
    embedding = architecture.outer_tensor("embedding.weight")
    tied_head = stored.pop(head, None) if weights.tied else None
    if tied_head is not None and embedding not in stored:
        stored[embedding], tied_head = tied_head, None
    _check_names(checkpoint, stored, targets)
    copies = [_Copy(source, targets[name]) for name, source in stored.items() if name in targets]
    for copy in copies:
        copy.source.check(copy.target.shape)
    _copy_all([copy for copy in copies if not copy.target.tensor.is_meta], progress)
    if tied_head is not None:
        _check_tied(tied_head, weights.outer["embedding"].weight)


def load_layer(
    parameters: Iterable[Parameter],
    layer: int,
    architecture: Architecture,
    stored: Mapping[str, Source],
) -> None:
    """Copy some weights of a layer out of a checkpoint that has been checked.

    Raises:
        ModelError: not representable, or a damaged file.
    """
    _copy_all(
        [_Copy(stored[architecture.layer_tensor(layer, p.name)], p) for p in parameters], None
    )


def stored_sources(
    checkpoint: Checkpoint,
    architecture: Architecture,
    quantization: StoredQuantization | None,
    wanted: Collection[str] | None = None,
) -> dict[str, Source]:
    """The text model's weights by full name; see `find_sources`. `wanted` None: whatever is there.

    Raises:
        ModelError: one is quantized in a way that is not supported.
    """
    tensors = named_with_prefix(checkpoint, architecture.prefix)
    tensors = {n: t for n, t in tensors.items() if not n.startswith(architecture.ignored)}
    return find_sources(tensors, quantization, tensors if wanted is None else wanted)


def checkpoint_parameters(weights: Weights, architecture: Architecture) -> dict[str, Parameter]:
    """Every stored weight by its name in checkpoints of `architecture`."""
    return {
        architecture.outer_tensor(p.name)
        if p.layer is None
        else architecture.layer_tensor(p.layer, p.name): p
        for p in weights.parameters(architecture.fused_modules)
    }


def checkpoint_tensors(weights: Weights, architecture: Architecture) -> dict[str, Tensor]:
    """The memory of every stored weight, where none is quantized, by that name."""
    parameters = checkpoint_parameters(weights, architecture)
    return {name: parameter.tensor for name, parameter in parameters.items()}


def _check_names(
    checkpoint: Checkpoint, stored: Mapping[str, Source], targets: Mapping[str, Parameter]
) -> None:
    missing = [name for name in targets if name not in stored]
    if missing:
        raise ModelError(
            f"{checkpoint.directory} lacks {listed(missing)}; "
            "config.json and weights do not belong together, or the download is incomplete"
        )
    extra = [s.first.name for n, s in stored.items() if n not in targets and not _harmless(n)]
    if extra:
        raise ModelError(
            f"{checkpoint.directory} holds unexpected {listed(extra)}; "
            "config.json and weights do not belong together"
        )


def _harmless(name: str) -> bool:
    # Old checkpoints store the rotary frequencies, which config.json determines; quantized ones the
    # scales of activations, of keys and of values, which stay exact here.
    return name.endswith(("rotary_emb.inv_freq", *(f".{part}" for part in IGNORED_PARTS)))


def _copy_all(copies: list[_Copy], progress: Progress | None) -> None:
    total_bytes = sum(copy.source.size_bytes for copy in copies)
    done_bytes = 0
    ordered = sorted(copies, key=lambda copy: copy.source.first.file)
    for file, of_file in groupby(ordered, key=lambda copy: copy.source.first.file):
        with open_shard(file) as shard:
            for copy in of_file:
                _copy(copy, _read(copy.source, file, shard))
                done_bytes += copy.source.size_bytes
                if progress is not None:
                    progress(done_bytes, total_bytes, copy.source.first.name)


def _read(source: Source, file: Path, shard: Any) -> dict[str, Tensor]:
    """All tensors of a weight, most of them in the shard that is open."""
    parts: dict[str, Tensor] = {}
    for part, tensor in source.tensors.items():
        if tensor.file == file:
            parts[part] = shard.get_tensor(tensor.name)
        else:
            with open_shard(tensor.file) as other:
                parts[part] = other.get_tensor(tensor.name)
    return parts


def _copy(copy: _Copy, parts: Mapping[str, Tensor]) -> None:
    stored, target = copy.source, copy.target
    name = f"{stored.first.name}' in {stored.first.file}"
    try:
        if stored.map is None:
            (value,) = parts.values()
            _fill_by_pieces(target, value)
        else:
            outputs, inputs = target.shape
            fill(target, stored.map.weight.read(outputs, inputs, parts))
            for part in parts.values():
                forget_pages(part)
    except RangeError as error:
        raise ModelError(f"tensor '{name} {error}; use --dtype bfloat16", param="dtype") from error
    except ValueError as error:
        raise ModelError(f"tensor '{name} cannot be used: {error}") from error


def _fill_by_pieces(target: Parameter, value: Tensor) -> None:
    """Rows of the mapped file are given back as they are copied, so that an embedding is not in
    memory twice; where weights are quantized as they are read, a matrix at a time.
    """
    rows = max(1, len(value) * _PIECE_BYTES // value.nbytes)
    if target.quantized is not None or rows >= len(value):
        fill(target, value)
        forget_pages(value)
        return
    for part, piece in zip(target.tensor.split(rows), value.split(rows), strict=True):
        fill(replace(target, tensor=part), piece)
        forget_pages(piece)


def _check_tied(head: Source, embedding: Tensor) -> None:
    """A tied checkpoint may hold its head a second time, but not another one."""
    head.check(tuple(embedding.shape))
    tensor = head.first
    with open_shard(tensor.file) as shard:
        same = torch.equal(shard.get_tensor(tensor.name).to(embedding), embedding)
    if not same:
        raise ModelError(
            f"'{tensor.name}' in {tensor.file} differs from the embeddings it is said to be tied "
            "to; set 'tie_word_embeddings' to false in config.json"
        )
