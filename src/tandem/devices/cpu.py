"""What this machine's processor can do."""

import os
from pathlib import Path

import torch

from tandem.devices.host_threads import usable_cores


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


def bound_threads() -> tuple[str, ...]:
    """Keep torch from running more threads than the control group grants cores; a note if it would.

    torch counts the cores of the affinity mask. More threads than granted cores are throttled
    together, in the middle of parallel regions. OMP_NUM_THREADS is the user's word and stays.
    """
    threads, cores = torch.get_num_threads(), usable_cores()
    if threads <= cores or "OMP_NUM_THREADS" in os.environ:
        return ()
    torch.set_num_threads(cores)
    return (
        f"computing on {cores} of {threads} cores, which is what the control group grants; "
        "OMP_NUM_THREADS overrides",
    )
