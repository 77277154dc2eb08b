"""What an executor can tell about its device."""

import weakref
from typing import TYPE_CHECKING

import torch

from tandem.memory.peaks import read_host_memory
from tandem.models.model import Model
from tandem.runtime.machine import Machine
from tandem.spec.tier import Tier
from tandem.spec.units import format_size

if TYPE_CHECKING:
    from tandem.devices.cuda.memory import CudaMemory
    from tandem.runtime.overlap_meter import OverlapMeter


class HostMeasures:
    """The operating system's word on this process."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._threads = torch.get_num_threads()

    @property
    def description(self) -> str:
        """Threads in use."""
        return f"none (host, {self._threads} threads)"

    def peak_bytes(self) -> int:
        """Highest resident set."""
        return read_host_memory().peak_rss_bytes

    def workspace_bytes(self) -> int:
        """The arena's peak."""
        return self._machine.arena.peak_bytes

    def staging_bytes(self) -> int:
        """Host buffers' peak."""
        return self._machine.buffers.staging_peak_bytes

    def pinned_bytes(self) -> int:
        """Nothing copies past the processor."""
        return 0

    @property
    def overlap(self) -> None:
        """There is no accelerator."""


class EmulatedMeasures:
    """The emulated accelerator's own count: weights, pages, slot table, and the arena's peak."""

    def __init__(self, machine: Machine, model: Model, name: str) -> None:
        self._machine = machine
        self._fixed = model.weights.resident_bytes + machine.kv.size_bytes(Tier.DEVICE)
        self._fixed += machine.slots.nbytes
        if machine.runner.blocks is not None:
            self._fixed += machine.runner.blocks.passing.device_bytes
        self._name = name

    @property
    def description(self) -> str:
        """Mode and memory in use."""
        return f"{self._name}, {format_size(self._fixed)} of weights and KV pages"

    def peak_bytes(self) -> int:
        """Fixed allocations and the most that activations took at once."""
        return self._fixed + self._machine.arena.peak_bytes

    def workspace_bytes(self) -> int:
        """The arena's peak."""
        return self._machine.arena.peak_bytes

    def staging_bytes(self) -> int:
        """Host buffers' peak."""
        return self._machine.buffers.staging_peak_bytes

    def pinned_bytes(self) -> int:
        """Nothing copies past the processor."""
        return 0

    @property
    def overlap(self) -> None:
        """Its times mean nothing."""


class CudaMeasures:
    """The driver's and the allocator's word on a device, and the machine's on its host buffers, as
    long as there is one: who asks an engine for figures does not keep its memory.
    """

    def __init__(self, memory: "CudaMemory", machine: Machine, overlap: "OverlapMeter") -> None:
        self._memory = memory
        self._machine = weakref.ref(machine)
        self._overlap = overlap

    @property
    def description(self) -> str:
        """Name, compute capability and memory."""
        return self._memory.description

    def peak_bytes(self) -> int:
        """Most that the driver had given out, to other processes too."""
        return self._memory.driver_peak_bytes()

    def workspace_bytes(self) -> int:
        """The allocator's peak beside weights, pages and slot table."""
        return self._memory.grown_bytes()

    def staging_bytes(self) -> int | None:
        """Host buffers' peak; not known of a closed engine."""
        machine = self._machine()
        return None if machine is None else machine.buffers.staging_peak_bytes

    def pinned_bytes(self) -> int:
        """What the driver has locked for the machine, as long as it is."""
        machine = self._machine()
        return 0 if machine is None else machine.pinned_bytes

    @property
    def overlap(self) -> "OverlapMeter":
        """By events' times."""
        return self._overlap
