"""Where in a safetensors file each tensor's bytes lie."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.spec.errors import ModelError


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A run of bytes in a file."""

    offset: int
    size_bytes: int


def tensor_places(file: Path) -> dict[str, FilePlace]:
    """Place of every tensor: the file is 8 bytes (length of a JSON header), the header, the data.

    Raises:
        ModelError: it cannot be read as such.
    """
    try:
        with file.open("rb") as stream:
            header_bytes = int.from_bytes(stream.read(8), "little")
            header: dict[str, Any] = json.loads(stream.read(header_bytes))
        start = 8 + header_bytes
        spans = {n: t["data_offsets"] for n, t in header.items() if n != "__metadata__"}
        return {name: FilePlace(start + at, end - at) for name, (at, end) in spans.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelError(f"cannot read the header of {file} ({error}); restore it") from None
