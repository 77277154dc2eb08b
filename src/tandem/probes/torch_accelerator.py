"""An accelerator that torch drives, as probes see it.

Sizes are such that submitting is hidden by the work, except where submitting is what is measured.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor

from tandem.probes.timing import Sample, timed
from tandem.spec.dtype import DType

_COPIES = 4  # of weights, beyond the accelerator's cache where they are large


class ProbeDevice(Protocol):
    """What torch needs of a device."""

    device: torch.device
    name: str
    memory_bytes: int

    def pinned(self, size_bytes: int) -> Tensor:
        """uint8 [size_bytes] in host memory that the device may access."""
        ...

    def synchronize(self) -> None:
        """Wait until all that was submitted has ended."""
        ...

    def aside(self) -> AbstractContextManager[object]:
        """What is submitted within may run beside the rest."""
        ...


class TorchAccelerator:
    """See `ProbedAccelerator`."""

    def __init__(self, probed: ProbeDevice) -> None:
        self._probed = probed
        self.name, self.memory_bytes = probed.name, probed.memory_bytes

    def copying(self, size_bytes: int) -> Sample:
        """Within its memory."""
        source = torch.ones(size_bytes, dtype=torch.uint8, device=self._probed.device)
        target = torch.zeros_like(source)
        return self._ended(lambda: target.copy_(source))

    def kernels(self, count: int) -> Sample:
        """Additions to one element."""
        tiny = torch.zeros(1, device=self._probed.device)
        return self._ended(lambda: tiny.add_(1), count)

    def products(self, dtype: DType, side: int, rows: Sequence[int]) -> Mapping[int, Sample]:
        """By turns with several weights."""
        kind, device = getattr(torch, dtype), self._probed.device
        weights = torch.randn(_COPIES, side, side, device=device).to(kind)
        return {
            count: self._product(weights, torch.randn(count, side, device=device).to(kind))
            for count in rows
        }

    def crossings(
        self, sizes: Sequence[int], *, to_device: bool, pinned: bool
    ) -> Mapping[int, Sample]:
        """Parts of one buffer on each side."""
        largest = max(sizes)
        there = torch.ones(largest, dtype=torch.uint8, device=self._probed.device)
        here = torch.empty(largest, dtype=torch.uint8)
        if pinned:
            here = self._probed.pinned(largest)
        here.fill_(1)
        target, source = (there, here) if to_device else (here, there)
        return {size: self._copy(target[:size], source[:size]) for size in sizes}

    def crossing_both(self, size_bytes: int) -> Sample:
        """Submitted together, on two queues."""
        probed = self._probed
        up, down = probed.pinned(size_bytes).fill_(1), probed.pinned(size_bytes).fill_(1)
        there, back = (
            torch.ones(size_bytes, dtype=torch.uint8, device=probed.device) for _ in range(2)
        )

        def run() -> None:
            there.copy_(up, non_blocking=True)
            with probed.aside():
                down.copy_(back, non_blocking=True)
            probed.synchronize()

        return lambda _: timed(run)

    def _ended(self, call: Callable[[], object], count: int = 1) -> Sample:
        def run() -> None:
            for _ in range(count):
                call()
            self._probed.synchronize()

        return lambda _: timed(run)

    def _copy(self, target: Tensor, source: Tensor) -> Sample:
        return self._ended(lambda: target.copy_(source, non_blocking=True))

    def _product(
        self,
        weights: Tensor,  # [copies, side, side]
        x: Tensor,  # [rows, side]
    ) -> Sample:
        count = len(weights)

        def run() -> None:
            with torch.inference_mode():
                for weight in weights:
                    torch.mm(x, weight)
            self._probed.synchronize()

        return lambda _: timed(run) / count
