"""GPUDirect Storage: reads from a disk straight into a GPU's memory, by kvikio (ADR 0015)."""

import importlib
import importlib.util
from types import ModuleType

from tandem.devices.host_facts import package_version
from tandem.spec.errors import ConfigError

_PACKAGES = ("kvikio-cu13", "kvikio-cu12")


def kvikio() -> ModuleType:
    """NVIDIA's library; it loads the GPU's driver."""
    for part in ("defaults", "cufile_driver"):
        importlib.import_module(f"kvikio.{part}")
    return importlib.import_module("kvikio")


def without_fallback() -> ModuleType:
    """kvikio, told to refuse a file that it would read through host memory.

    By default it decides for each file, when it opens it: where O_DIRECT or cuFile refuses, it goes
    on through host memory and says nothing, whatever `is_compat_mode_preferred` has said.
    """
    found = kvikio()
    found.defaults.set("compat_mode", found.CompatMode.OFF)
    return found


def version() -> str | None:
    """Of kvikio; None: it is not installed."""
    if importlib.util.find_spec("kvikio") is None:
        return None
    return next(filter(None, map(package_version, _PACKAGES)), "of unknown version")


def reason_against() -> str | None:
    """Why nothing can be read so, with the remedy; None if it can.

    kvikio and cuFile, each by itself, else read through host memory without a word.
    """
    if importlib.util.find_spec("kvikio") is None:
        return "kvikio is not installed (pip install kvikio-cu13, or kvikio-cu12 for CUDA 12)"
    try:
        found = kvikio()
        if found.defaults.is_compat_mode_preferred():
            return (
                "kvikio would read through host memory (its compatibility mode); load the driver "
                "nvidia-fs and libcufile, and unset KVIKIO_COMPAT_MODE"
            )
        there = found.cufile_driver.get("is_gds_available")
        falls_back = found.cufile_driver.get("allow_compat_mode")
    except (ImportError, OSError, RuntimeError) as error:
        told = " ".join(str(error).split())
        return f"kvikio cannot be loaded ({told}); install it anew for this driver"
    if not there:
        return "cuFile finds no driver nvidia-fs; load it"
    if falls_back:
        return (
            "cuFile may read through host memory where a file system is none of GPUDirect's; set "
            "CUFILE_ALLOW_COMPAT_MODE=false, so that it refuses"
        )
    return None


def require() -> None:
    """Refuse where nothing can be read so.

    Raises:
        ConfigError: says why, and the remedy.
    """
    reason = reason_against()
    if reason is not None:
        raise ConfigError(
            f"--disk-io gpudirect: {reason}, or use --disk-io direct", param="disk_io"
        )


def describe() -> str:
    """One line for people: whether it can be used here, or why not."""
    reason = reason_against()
    return f"can be used, by kvikio {version()}" if reason is None else f"cannot be used: {reason}"
