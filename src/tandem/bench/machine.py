"""The machine that a record was made on."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

import tandem
from tandem.devices.cpu_cache import last_level_cache_bytes
from tandem.devices.host_facts import nvidia_gpus, package_version, processor_name
from tandem.memory.peaks import read_host_memory

_RECORDS = "benchmarks/results"
_THREADING = ("OMP_", "MKL_", "GOMP_", "KMP_")


def describe_machine() -> dict[str, Any]:
    """Plain JSON values: what a reader must know to judge or repeat a figure.

    `load_average` is the last minute's at the time of the call: ask before the run. `git_commit`
    is None outside a checkout and ends in `-dirty` where files differ from it.
    """
    affinity = sorted(os.sched_getaffinity(0))
    return {
        "cpu": processor_name(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores_usable": len(affinity),
        "affinity": affinity,
        "threads": torch.get_num_threads(),
        "threading_variables": {
            name: value for name, value in sorted(os.environ.items()) if name.startswith(_THREADING)
        },
        "last_level_cache_bytes": last_level_cache_bytes(),
        "memory_bytes": read_host_memory().capacity_bytes,
        "gpus": list(nvidia_gpus() or ()),
        "load_average": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": package_version("transformers"),
        "tandem": tandem.__version__,
        "git_commit": git_commit(Path(tandem.__file__).parent),
    }


def git_commit(directory: Path) -> str | None:
    """The commit that `directory`, the repository's root, is checked out at; None if it is not, or
    there is no git. Records that were just written are no change of what was measured.
    """
    commit = _git(directory, "rev-parse", "HEAD")
    if not commit:
        return None
    changed = _git(directory, "status", "--porcelain", "--", ".", f":(exclude){_RECORDS}")
    return f"{commit}-dirty" if changed else commit


def _git(directory: Path, *arguments: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", "-C", str(directory), *arguments], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return result.stdout.strip() if result.returncode == 0 else None
