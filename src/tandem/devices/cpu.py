"""What this machine's processor can do."""

from pathlib import Path

import torch


def has_amx() -> bool:
    """True if matrix tiles make bfloat16 products several times as fast as fp32."""
    return torch.cpu._is_amx_tile_supported()


def is_intel(root: Path = Path("/")) -> bool:
    """True on the processors that MKL is written for.

    Args:
        root: where `proc` lies; `/` but in tests.
    """
    try:
        return "GenuineIntel" in (root / "proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
