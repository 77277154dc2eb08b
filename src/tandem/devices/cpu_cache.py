"""Size of the processor's caches, from sysfs."""

from pathlib import Path

_FACTORS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_DEFAULT_BYTES = 32 << 20


def last_level_cache_bytes(root: Path = Path("/")) -> int:
    """Bytes of the largest cache that the first core sees; 32 MiB where sysfs does not tell.

    On a virtual machine this may be the whole socket's cache, shared with others: an upper bound.

    Args:
        root: where `sys` lies; `/` but in tests.
    """
    folder = root / "sys/devices/system/cpu/cpu0/cache"
    sizes = [_read_size(path) for path in folder.glob("index*/size")]
    return max(sizes, default=0) or _DEFAULT_BYTES


def _read_size(path: Path) -> int:
    try:
        text = path.read_text().strip()
        return int(text.rstrip("KMG")) * _FACTORS.get(text[-1:], 1)
    except (OSError, ValueError):
        return 0
