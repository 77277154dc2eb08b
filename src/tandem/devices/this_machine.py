"""What identifies this machine, the kernels and the probes, found out without torch."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import tandem.kernels
from tandem.devices.host_facts import nvidia_gpus, processor_name
from tandem.devices.host_threads import usable_cores
from tandem.profiling.profile import Machine

_DIGEST_LENGTH = 16
_TYPES = ("dtype.py", "kv_type.py", "weight_format.py")
"""In `spec/`: what `probes/effort.py` measures each of."""


def this_machine(environment: Mapping[str, str]) -> Machine:
    """As many threads as an engine takes: the granted cores, or OMP_NUM_THREADS if that is less."""
    gpus = nvidia_gpus()
    cores = tuple(sorted(os.sched_getaffinity(0)))
    wanted = environment.get("OMP_NUM_THREADS", "").partition(",")[0]
    threads = min(usable_cores(), int(wanted) if wanted.isdigit() and int(wanted) else len(cores))
    return Machine(gpus[0] if gpus else "none", processor_name(), cores, threads)


def code_digest(
    folder: Path | None = None, probes: Path | None = None, spec: Path | None = None
) -> str:
    """Of what a profile measures and how: the compiled module's bytes, the GPU kernels' sources,
    the probes', whose sizes are among them, and the lists of types that they go through; `none`
    where the first was not built.

    Args:
        folder, probes, spec: where kernels, probes and types lie; None: where the package has them.
    """
    folder = Path(tandem.kernels.__file__).parent if folder is None else folder
    package = Path(tandem.kernels.__file__).parents[1]
    probes = package / "probes" if probes is None else probes
    spec = package / "spec" if spec is None else spec
    files = sorted(folder.glob("_native*.so"))
    if not files:
        return "none"
    digest = hashlib.sha256(files[0].read_bytes())
    sources = (*sorted(folder.glob("triton_*.py")), *sorted(probes.glob("*.py")))
    for source in (*sources, *(spec / name for name in _TYPES)):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:_DIGEST_LENGTH]


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where Tandem keeps files of the user's that can be made again."""
    cache = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "tandem"
