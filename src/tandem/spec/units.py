"""Sizes as people write them."""

import re

from tandem.spec.errors import ConfigError

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40

_FACTORS = {
    "": 1, "b": 1,
    "k": KIB, "kib": KIB, "kb": 1000,
    "m": MIB, "mib": MIB, "mb": 1000**2,
    "g": GIB, "gib": GIB, "gb": 1000**3,
    "t": TIB, "tib": TIB, "tb": 1000**4,
}  # fmt: skip
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def parse_size(text: str, *, param: str | None = None) -> int:
    """Bytes meant by `12GiB`, `1.5g`, `800 MB` or `1048576`.

    Raises:
        ConfigError: not a size.
    """
    match = _SIZE.fullmatch(text)
    factor = _FACTORS.get(match.group(2).lower()) if match else None
    if match is None or factor is None:
        raise ConfigError(
            f"'{text}' is not a size; write for example 12GiB, 800MiB or 1048576", param=param
        )
    return int(float(match.group(1)) * factor)


def format_size(size_bytes: int | float) -> str:
    """`1536` -> `1.5 KiB`; exact bytes below one KiB."""
    size = float(size_bytes)
    if abs(size) < KIB:
        return f"{int(size)} B"
    for unit in ("KiB", "MiB", "GiB"):
        size /= KIB
        if abs(size) < KIB:
            return f"{size:.1f} {unit}"
    return f"{size / KIB:.1f} TiB"
