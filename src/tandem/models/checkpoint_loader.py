"""Fills a model's weights from a checkpoint, one file at a time.

Names, shapes and types are checked over all files before the first byte is copied. Each tensor is
then read from its mapped file straight into its place, converted on the way, so memory beyond the
weights themselves stays within one file's mapping.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from tandem.models.architecture import Architecture
from tandem.models.checkpoint import Checkpoint, StoredTensor, listed, open_shard
from tandem.models.weights import Parameter, Weights
from tandem.spec.errors import ModelError

# Called with bytes done, bytes in total, and the name of the tensor just finished.
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class _Copy:
    source: StoredTensor
    target: Tensor


def load_checkpoint(
    weights: Weights,
    architecture: Architecture,
    checkpoint: Checkpoint,
    progress: Progress | None = None,
) -> None:
    """Copy every tensor of `checkpoint` into `weights`, but those that have no memory there.

    Raises:
        ModelError: tensors missing, unexpected, misshapen, not representable, or a damaged file.
    """
    stored = stored_tensors(checkpoint, architecture)
    targets = checkpoint_tensors(weights, architecture)
    head = architecture.outer_tensor("head.weight")
    embedding = architecture.outer_tensor("embedding.weight")
    tied_head = stored.pop(head, None) if weights.tied else None
    if tied_head is not None and embedding not in stored:
        stored[embedding], tied_head = tied_head, None
    _check_names(checkpoint, stored, targets)
    copies = [_Copy(source, targets[name]) for name, source in stored.items() if name in targets]
    _check_shapes(copies)
    _copy_all([copy for copy in copies if not copy.target.is_meta], progress)
    if tied_head is not None:
        _check_tied(tied_head, weights.outer["embedding"].weight)


def load_layer(
    parameters: Iterable[Parameter],
    layer: int,
    architecture: Architecture,
    stored: Mapping[str, StoredTensor],
) -> None:
    """Copy some weights of a layer out of a checkpoint that has been checked.

    Raises:
        ModelError: not representable, or a damaged file.
    """
    _copy_all(
        [_Copy(stored[architecture.layer_tensor(layer, p.name)], p.tensor) for p in parameters],
        None,
    )


def stored_tensors(checkpoint: Checkpoint, architecture: Architecture) -> dict[str, StoredTensor]:
    """The text model's tensors by full name."""
    stored = _with_prefix(checkpoint, architecture.prefix)
    return {n: t for n, t in stored.items() if not n.startswith(architecture.ignored)}


def checkpoint_tensors(weights: Weights, architecture: Architecture) -> dict[str, Tensor]:
    """The memory of every stored weight by its name in checkpoints of `architecture`."""
    return {
        architecture.outer_tensor(p.name)
        if p.layer is None
        else architecture.layer_tensor(p.layer, p.name): p.tensor
        for p in weights.parameters(architecture.fused_modules)
    }


def _with_prefix(checkpoint: Checkpoint, prefix: str) -> dict[str, StoredTensor]:
    """Tensors by full name; checkpoints of a bare decoder lack the prefix."""
    tensors = checkpoint.tensors
    if any(name.startswith(prefix) for name in tensors):
        return dict(tensors)
    return {
        name if name.startswith("lm_head.") else prefix + name: tensor
        for name, tensor in tensors.items()
    }


def _check_names(
    checkpoint: Checkpoint, stored: Mapping[str, StoredTensor], targets: Mapping[str, Tensor]
) -> None:
    missing = [name for name in targets if name not in stored]
    if missing:
        raise ModelError(
            f"{checkpoint.directory} lacks {listed(missing)}; "
            "config.json and weights do not belong together, or the download is incomplete"
        )
    extra = [t.name for n, t in stored.items() if n not in targets and not _harmless(n)]
    if extra:
        raise ModelError(
            f"{checkpoint.directory} holds unexpected {listed(extra)}; "
            "config.json and weights do not belong together"
        )


def _harmless(name: str) -> bool:
    # Old checkpoints store the rotary frequencies, which config.json determines.
    return name.endswith("rotary_emb.inv_freq")


def _check_shapes(copies: list[_Copy]) -> None:
    for copy in copies:
        if copy.source.shape != tuple(copy.target.shape):
            raise ModelError(
                f"tensor '{copy.source.name}' in {copy.source.file} has shape "
                f"{list(copy.source.shape)}, but config.json asks for {list(copy.target.shape)}; "
                "they do not belong together"
            )


def _copy_all(copies: list[_Copy], progress: Progress | None) -> None:
    total_bytes = sum(copy.source.size_bytes for copy in copies)
    done_bytes = 0
    ordered = sorted(copies, key=lambda copy: copy.source.file)
    for file, of_file in groupby(ordered, key=lambda copy: copy.source.file):
        with open_shard(file) as shard:
            for copy in of_file:
                _copy(copy, shard.get_tensor(copy.source.name))
                done_bytes += copy.source.size_bytes
                if progress is not None:
                    progress(done_bytes, total_bytes, copy.source.name)


def _copy(copy: _Copy, tensor: Tensor) -> None:
    copy.target.copy_(tensor)
    narrows = copy.target.dtype == torch.float16 and tensor.dtype != torch.float16
    if narrows and not bool(torch.isfinite(copy.target).all()):
        raise ModelError(
            f"tensor '{copy.source.name}' holds values beyond float16's range; "
            "use --dtype bfloat16",
            param="dtype",
        )


def _check_tied(head: StoredTensor, embedding: Tensor) -> None:
    """A tied checkpoint may hold its head a second time, but not another one."""
    _check_shapes([_Copy(head, embedding)])
    with open_shard(head.file) as shard:
        same = torch.equal(shard.get_tensor(head.name).to(embedding), embedding)
    if not same:
        raise ModelError(
            f"'{head.name}' in {head.file} differs from the embeddings it is said to be tied to; "
            "set 'tie_word_embeddings' to false in config.json"
        )
