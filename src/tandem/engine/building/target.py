"""Which device an engine runs on, and how much of which memory it may use."""

from dataclasses import dataclass

import torch

from tandem.devices.cuda import gpu_direct
from tandem.devices.cuda.device import cuda_available, free_bytes, open_cuda
from tandem.devices.cuda.memory import give_back_memory
from tandem.engine.sizing.capacities import Capacities
from tandem.memory.host_default import DEFAULT_HOST_KV_BYTES
from tandem.memory.margin import margin_bytes
from tandem.memory.peaks import HostMemory, read_host_memory
from tandem.spec.accelerator import AcceleratorChoice, parse_accelerator
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.hardware import HardwareSpec
from tandem.spec.hardware_file import load_hardware
from tandem.spec.units import format_size, parse_size


@dataclass(frozen=True, slots=True)
class Target:
    """The resolved device and the memory that may be used.

    Attributes:
        host: the host's memory before anything was loaded.
        notes: what was decided for the user, one line each.
        hardware: the accelerator's description, where there is one.
    """

    choice: AcceleratorChoice
    device: torch.device
    capacities: Capacities
    host: HostMemory
    notes: tuple[str, ...] = ()
    hardware: HardwareSpec | None = None


def resolve_target(config: EngineConfig, host: HostMemory | None = None) -> Target:
    """Find the device that `--accelerator` means, and how much memory may be used.

    Args:
        host: the host's memory, by default what the system says now.

    Raises:
        ConfigError: there is no such device or description, or less memory than was asked for.
    """
    choice = parse_accelerator(config.accelerator)
    host = read_host_memory() if host is None else host
    if choice.kind == "auto":
        choice = AcceleratorChoice("cuda" if cuda_available() else "none")
    if choice.kind != "cuda":
        _refuse_without_gpu(config)
    if choice.kind == "none":
        return _on_host(config, choice, host)
    if choice.kind == "cuda":
        return _on_cuda(config, choice, host)
    return _emulated(config, choice, host)


def _refuse_without_gpu(config: EngineConfig) -> None:
    """Raises:
    ConfigError: an option that is a GPU's alone.
    """
    defaults = {"link_copies": "auto", "link_waits": "host", "attention_backend": "auto"}
    void = {param: getattr(config, param) for param in (*defaults, "disk_io")}
    for param, value in void.items():
        if value == "gpudirect" or value != defaults.get(param, value):
            raise ConfigError(
                f"--{param.replace('_', '-')} {value} has no meaning without a GPU; leave it out, "
                "or use --accelerator cuda",
                param=param,
            )


def _on_host(config: EngineConfig, choice: AcceleratorChoice, host: HostMemory) -> Target:
    if config.gpu_memory != "auto":
        raise ConfigError(
            "--gpu-memory has no meaning without an accelerator; use --cpu-memory",
            param="gpu_memory",
        )
    size, notes = _host_bytes(config, host)
    capacities = Capacities(
        size,
        0,
        "host",
        process_bytes=host.rss_bytes,
        device_limit_bytes=host.available_bytes,
        room_bytes=_room_bytes(host),
        elastic=config.cpu_memory == "auto",
    )
    return Target(choice, torch.device("cpu"), capacities, host, notes + _void_margin(config))


def _on_cuda(config: EngineConfig, choice: AcceleratorChoice, host: HostMemory) -> Target:
    device = open_cuda(choice.index)
    if config.disk_io == "gpudirect":
        gpu_direct.require()
    give_back_memory()  # what the allocator keeps and nobody uses is free
    free = free_bytes(device)
    size, margin_notes = free - _margin(config, free), ()
    if config.gpu_memory != "auto":
        size, margin_notes = parse_size(config.gpu_memory, param="gpu_memory"), _void_margin(config)
        _require("gpu_memory", size, free, f"{format_size(free)} that are free on {device}")
    in_host, notes = _host_bytes(config, host)
    capacities = Capacities(
        size,
        in_host,
        process_bytes=host.rss_bytes,
        device_limit_bytes=free,
        host_limit_bytes=host.available_bytes,
        room_bytes=_room_bytes(host),
        graphs=True,
        elastic=config.cpu_memory == "auto",
    )
    return Target(choice, device, capacities, host, notes + margin_notes)


def _margin(config: EngineConfig, free: int) -> int:
    """Of the accelerator's free memory, what stays free.

    Raises:
        ConfigError: not a size, or more than that.
    """
    if config.gpu_margin == "auto":
        return 0 if config.plan is not None else margin_bytes(free)  # a plan has left its own
    margin = parse_size(config.gpu_margin, param="gpu_margin")
    _require("gpu_margin", margin, free, f"{format_size(free)} that are free")
    return margin


def _void_margin(config: EngineConfig) -> tuple[str, ...]:
    """A note if a margin was asked for that nothing is taken from."""
    if config.gpu_margin == "auto":
        return ()
    return (f"--gpu-margin {config.gpu_margin} has no effect: it is for --gpu-memory auto on CUDA",)


def _emulated(config: EngineConfig, choice: AcceleratorChoice, host: HostMemory) -> Target:
    hardware = load_hardware(choice.spec)
    if choice.mode == "paced":
        raise ConfigError(
            "the paced emulator runs under `tandem bench`, it returns no text; use emulated:exact",
            param="accelerator",
        )
    size = hardware.accelerator.memory_bytes
    if config.gpu_memory != "auto":
        size = parse_size(config.gpu_memory, param="gpu_memory")
        where = f"{_available(host)}, in which the emulated accelerator's memory lies"
        _require("gpu_memory", size, host.available_bytes, where)
    in_host, notes = _host_bytes(config, host, size)
    if config.gpu_margin != "auto":
        _margin(config, size)
    capacities = Capacities(
        size,
        in_host,
        real=False,
        process_bytes=host.rss_bytes,
        device_limit_bytes=host.available_bytes,
        host_limit_bytes=host.available_bytes,
        room_bytes=_room_bytes(host),
        elastic=config.cpu_memory == "auto",
    )
    notes += _void_margin(config)
    return Target(choice, torch.device("cpu"), capacities, host, notes, hardware)


def _room_bytes(host: HostMemory) -> int:
    """What everything together may take of the host's memory: a margin stays free."""
    return host.available_bytes - margin_bytes(host.available_bytes)


def _host_bytes(
    config: EngineConfig, host: HostMemory, emulated_bytes: int = 0
) -> tuple[int, tuple[str, ...]]:
    """What `--cpu-memory` says; under `auto` all that there is room for, and a note about it.

    Args:
        emulated_bytes: of an emulated accelerator, which lie in the same memory.
    """
    if config.cpu_memory == "auto":
        size = max(0, _room_bytes(host) - emulated_bytes)
        if config.plan is not None:
            return size, ()  # the plan says how much of it is used
        note = (
            f"host memory: up to {format_size(size)} of the {format_size(host.available_bytes)} "
            f"free, and at most about {format_size(min(DEFAULT_HOST_KV_BYTES, size))} of it for "
            "KV; --cpu-memory "
            "overrides"
        )
        return size, (note,)
    size = parse_size(config.cpu_memory, param="cpu_memory")
    _require("cpu_memory", size, host.available_bytes, _available(host))
    return size, ()


def _available(host: HostMemory) -> str:
    limit = host.cgroup_limit_bytes
    bound = f" (control group's limit: {format_size(limit)})" if limit is not None else ""
    return f"{format_size(host.available_bytes)} of host memory that are available{bound}"


def _require(param: str, wanted_bytes: int, there_bytes: int, there: str) -> None:
    if wanted_bytes > there_bytes:
        raise ConfigError(
            f"--{param.replace('_', '-')} {format_size(wanted_bytes)} is more than the {there}; "
            "lower it",
            param=param,
        )
