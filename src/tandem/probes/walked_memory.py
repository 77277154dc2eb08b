"""Memory that calls walk through, so that caches do not help."""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from tandem.devices.host_memory import bulk_zeros

_ALIGNED_BYTES = 2 << 20  # huge pages, of which a part has its own


class WalkedMemory:
    """One block of host memory, which probes fill one after the other.

    Mapped anew for every probe, gigabytes beside a large cache take longer than what is timed.

    Attributes:
        size_bytes: what calls walk through before they come back.
    """

    def __init__(self, size_bytes: int, block: Tensor | None = None) -> None:
        self.size_bytes = size_bytes
        self._block = torch.empty(0, dtype=torch.uint8) if block is None else block

    def parts(self, count: int) -> "list[WalkedMemory]":
        """Disjoint, for calls that take turns: together they walk through all of it."""
        each = self.size_bytes // count // _ALIGNED_BYTES * _ALIGNED_BYTES
        whole = self.take((count, each), torch.uint8)
        return [WalkedMemory(each, block) for block in whole]

    def take(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """From its beginning on, with whatever it holds; more is mapped if that is not enough.

        Whoever took it before sees what is written now.
        """
        size_bytes = prod(shape) * dtype.itemsize
        if size_bytes > len(self._block):
            self._block = torch.empty(0, dtype=torch.uint8)  # given back before more is mapped
            self._block = bulk_zeros((max(size_bytes, self.size_bytes),), torch.uint8)
        return self._block[:size_bytes].view(dtype).view(*shape)


def fill(target: Tensor, few: Tensor) -> None:
    """`few`, flat and of the same type, over and over, by all of torch's threads at once: random
    numbers take far longer to draw than to copy.
    """
    flat = target.view(-1)
    whole = len(flat) // len(few)
    begin = flat[: whole * len(few)]
    begin.view(whole, len(few)).copy_(few.expand(whole, -1))
    flat[len(begin) :].copy_(few[: len(flat) - len(begin)])
