"""Names of this machine's parts and of what is installed, for reports and records."""

import platform
import shutil
import subprocess
from pathlib import Path


def processor_name() -> str:
    """The processor's model name, or the architecture where the kernel does not tell it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def nvidia_gpus() -> tuple[str, ...] | None:
    """A line per GPU with name, memory, driver, capability; None if there is no `nvidia-smi`."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    query = "--query-gpu=name,memory.total,driver_version,compute_cap"
    result = subprocess.run(
        [tool, query, "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    return tuple(result.stdout.splitlines())


def package_version(package: str) -> str | None:
    """The installed distribution's version."""
    from importlib.metadata import PackageNotFoundError, version  # which few commands need

    try:
        return version(package)
    except PackageNotFoundError:
        return None
