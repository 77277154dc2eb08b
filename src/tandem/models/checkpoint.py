"""What a checkpoint holds: its safetensors files and the tensors in them, without reading data."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from tandem.models.config_reader import read_json_object
from tandem.spec.errors import ModelError

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

FLOAT_TYPES = ("F64", "F32", "F16", "BF16")
_ELEMENT_BYTES = {
    **{"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1},
    **{"I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1},
}
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a checkpoint file.

    Attributes:
        name: its name in the file.
        dtype: safetensors' name of its element type.
    """

    name: str
    file: Path
    shape: tuple[int, ...]
    dtype: str

    @property
    def size_bytes(self) -> int:
        """Bytes in the file."""
        count = _ELEMENT_BYTES[self.dtype]
        for size in self.shape:
            count *= size
        return count


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All tensors of a checkpoint, by name, in the order of its files."""

    directory: Path
    tensors: Mapping[str, StoredTensor]


@contextmanager
def open_shard(file: Path) -> Iterator[Any]:
    """Open one safetensors file for reading to the CPU; closed, and unmapped, on exit.

    Raises:
        ModelError: missing, truncated, or with a corrupt header.
    """
    try:
        shard = safe_open(file, framework="pt", device="cpu")
    except SafetensorError as error:
        cut_off = _tensors_cut_off(file)
        what = f"cut off within {listed(cut_off)}" if cut_off else f"truncated or corrupt ({error})"
        raise ModelError(f"{file} is {what}; download the file again") from error
    except OSError as error:
        reason = error.strerror or "not found"
        raise ModelError(f"cannot read {file} ({reason}); download the file again") from error
    with shard as handle:
        yield handle


def listed(names: Sequence[str]) -> str:
    """`tensors 'a', 'b', 'c' and 4 more`."""
    shown = ", ".join(f"'{name}'" for name in names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"tensor{'s' if len(names) > 1 else ''} {shown}{more}"


def _tensors_cut_off(file: Path) -> list[str]:
    """Tensors whose bytes end beyond the file's end, in order of their place in it.

    Empty if the header is damaged too, or the fault lies elsewhere. The file is a length (8 bytes,
    little-endian), a JSON header with each tensor's `data_offsets`, and the data.
    """
    try:
        with file.open("rb") as stream:
            header_bytes = int.from_bytes(stream.read(8), "little")
            held_bytes = file.stat().st_size - 8 - header_bytes
            if held_bytes < 0:
                return []
            header: dict[str, Any] = json.loads(stream.read(header_bytes))
        ends = {n: t["data_offsets"][1] for n, t in header.items() if n != "__metadata__"}
        return sorted((n for n, end in ends.items() if end > held_bytes), key=ends.__getitem__)
    except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError):
        return []


def read_checkpoint(directory: Path) -> Checkpoint:
    """List the tensors of the single-file or sharded checkpoint in `directory`.

    Raises:
        ModelError: no safetensors, a missing or damaged file, an index that disagrees with its
            files.
    """
    single, index = directory / SINGLE_FILE, directory / INDEX_FILE
    if single.is_file():
        return Checkpoint(directory, _read_shard(single))
    if not index.is_file():
        raise _no_weights(directory)
    weight_map = _read_weight_map(index)
    tensors: dict[str, StoredTensor] = {}
    for file_name in sorted(set(weight_map.values())):
        found = _read_shard(directory / file_name)
        # A tensor that lies in two files is taken from the one that the index names.
        tensors |= {n: t for n, t in found.items() if weight_map.get(n, file_name) == file_name}
    for name, file_name in weight_map.items():
        if name not in tensors:
            raise ModelError(
                f"{directory / file_name} lacks tensor '{name}', which {INDEX_FILE} places there; "
                "download the file again"
            )
    return Checkpoint(directory, tensors)


def _no_weights(directory: Path) -> ModelError:
    if any(directory.glob("*.safetensors")):
        return ModelError(
            f"{directory} holds neither {SINGLE_FILE} nor {INDEX_FILE}; download the missing file"
        )
    if any(directory.glob("*.bin")) or any(directory.glob("*.pt*")):
        return ModelError(
            f"{directory} holds pickled weights only; convert them to safetensors "
            "(transformers: model.save_pretrained(directory))"
        )
    return ModelError(
        f"{directory} holds no {SINGLE_FILE}; download the weights, or use --load-format dummy"
    )


def _read_weight_map(index: Path) -> dict[str, str]:
    reader = read_json_object(index)
    weight_map = reader.section("weight_map").values
    if not weight_map:
        raise reader.error("'weight_map' is missing or empty; download the file again")
    for name, file_name in weight_map.items():
        # Only names of files beside the index: a path could lead anywhere.
        if not isinstance(file_name, str) or Path(file_name).name != file_name:
            raise reader.error(f"tensor '{name}' must lie in a file of the same directory")
    return dict(weight_map)


def _read_shard(file: Path) -> dict[str, StoredTensor]:
    with open_shard(file) as handle:
        headers = {name: handle.get_slice(name) for name in handle.keys()}  # noqa: SIM118
        found = {
            name: StoredTensor(name, file, tuple(header.get_shape()), header.get_dtype())
            for name, header in headers.items()
        }
    for tensor in found.values():
        if tensor.dtype not in _ELEMENT_BYTES:
            raise ModelError(
                f"tensor '{tensor.name}' in {file} has type {tensor.dtype}, which is not "
                "supported; use another checkpoint"
            )
    return found
