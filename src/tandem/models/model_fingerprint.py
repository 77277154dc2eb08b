"""Says whether two directories hold the same model."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from tandem.spec.units import MIB

_SUFFIXES = (".json", ".jinja", ".model", ".safetensors", ".txt")
_WHOLE_BYTES = 32 * MIB
_NUM_SAMPLES = 64
_SAMPLE_BYTES = 65536


def fingerprint_model(directory: Path) -> str:
    """SHA-256 over names, sizes and contents of a model's files; of large files, over samples.

    Two checkpoints of one architecture differ nearly everywhere, so samples tell them apart, and a
    hundred gigabytes need not be read.
    """
    digest = hashlib.sha256()
    for path in sorted(directory.iterdir()):
        if path.suffix in _SUFFIXES and path.is_file():
            size_bytes = path.stat().st_size
            digest.update(f"{path.name} {size_bytes}\n".encode("utf-8", "surrogateescape"))
            for sample in _samples(path, size_bytes):
                digest.update(sample)
    return digest.hexdigest()


def _samples(path: Path, size_bytes: int) -> Iterator[bytes]:
    if size_bytes <= _WHOLE_BYTES:
        yield path.read_bytes()
        return
    with path.open("rb") as file:
        for index in range(_NUM_SAMPLES):
            offset = (size_bytes - _SAMPLE_BYTES) * index // (_NUM_SAMPLES - 1)
            yield os.pread(file.fileno(), _SAMPLE_BYTES, offset)
