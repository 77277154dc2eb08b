"""`tandem collect-env`: what a bug report needs."""

import json
import os
import platform
from pathlib import Path
from typing import Annotated

import typer

import tandem
from tandem.devices.host_facts import nvidia_gpus, package_version, processor_name
from tandem.spec.errors import ConfigError
from tandem.spec.units import format_size

_PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "fastapi", "uvicorn")
_VARIABLES = ("TANDEM_", "CUDA_", "HF_", "OMP_", "MKL_", "NCCL_")
_SECRET_PARTS = ("KEY", "TOKEN", "SECRET", "PASSWORD")


def collect_env(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Print what bug reports need to say.

    Versions, processor, memory and accelerators.
    """
    facts = environment()
    if as_json:
        print(json.dumps(facts))
        return
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        print(f"{name:<{width}}  {value}")


def environment() -> dict[str, str]:
    """Facts about this machine and installation, by name; secrets are left out."""
    import psutil

    from tandem.devices.host_memory import huge_pages
    from tandem.devices.memory_nodes import describe_nodes, memory_nodes

    memory = psutil.virtual_memory()
    return {
        "tandem": tandem.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": processor_name(),
        "usable cores": str(len(os.sched_getaffinity(0))),
        "physical cores": str(psutil.cpu_count(logical=False)),
        "memory": f"{format_size(memory.total)}, {format_size(memory.available)} available",
        "memory limit": _memory_limit(),
        "huge pages": huge_pages(),
        "memory nodes": describe_nodes(memory_nodes()),
        "accelerators": _accelerators(),
        "CPU kernels": _cpu_kernels(),
        "GPU kernels": _gpu_kernels(),
        "GPUDirect Storage": _gpu_direct(),
        "plans": _plans(),
        **{name: package_version(name) or "not installed" for name in _PACKAGES},
        **_variables(),
    }


def _memory_limit() -> str:
    """The control group's limit, which containers hide from other counters."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(path).read_text(encoding="ascii").strip()
        except OSError:
            continue
        # Version 1 writes "no limit" as a huge number.
        unlimited = not text.isdigit() or int(text) >= 1 << 60
        return "none" if unlimited else format_size(int(text))
    return "unknown"


def _cpu_kernels() -> str:
    from tandem.kernels import native

    if not native.available():
        return f"torch reference: {native.unavailable_message()}"
    try:
        chosen = native.choose_isa()
    except ConfigError as error:
        return f"refused: {error.message}"
    return f"compiled, {chosen} (of {', '.join(native.supported_isas())})"


def _plans() -> str:
    from tandem.planner import native

    return "compiled loops" if native.available() else f"by Python: {native.unavailable_message()}"


def _gpu_kernels() -> str:
    from tandem.kernels import triton_support

    reason = triton_support.reason_against()
    return "Triton" if reason is None else f"torch reference: {reason}"


def _gpu_direct() -> str:
    from tandem.devices.cuda import gpu_direct

    return gpu_direct.describe()


def _accelerators() -> str:
    gpus = nvidia_gpus()
    if gpus is None:
        return "none found (no nvidia-smi)"
    return "; ".join(gpus) or "none found (nvidia-smi lists none)"


def _variables() -> dict[str, str]:
    shown = {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(_VARIABLES) and not any(part in name for part in _SECRET_PARTS)
    }
    return {f"${name}": value for name, value in shown.items()}
