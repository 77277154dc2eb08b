"""Activations that cross the link for layers on the CPU, without a thread that waits for them."""

from collections.abc import Callable
from math import prod

import torch
from torch import Tensor

from tandem.memory.scratch import PINNED_LANE_BYTES

_PARTS_OF_A_LANE = 4  # that lie there at once: residual, queries, keys, values


class HostCopies:
    """Copies between an accelerator and memory that its copies reach by themselves.

    Prompts do without such memory, as in `StagingShape`: it is never given back, and a copy from
    or to other memory, for which the queue's thread waits, is short beside their maths.

    Args:
        upload: brings a host tensor to the accelerator on the current queue.
        pinned: as `StagingShape.pinned`.
    """

    def __init__(
        self,
        upload: Callable[[Tensor], Tensor],
        pinned: Callable[[int], Tensor] | None = None,
    ) -> None:
        self._upload, self._pinned = upload, pinned

    def fetched(self, tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """On the host, once the operation has ended.

        Args:
            dtype: to come in. It is converted before: after the copy, the host would have to wait.
        """
        leaving = tensor if dtype is None else tensor.to(dtype)
        made = self._pinned_like(leaving.shape, leaving.dtype)
        if made is None:
            made = torch.empty(leaving.shape, dtype=leaving.dtype)
        return made.copy_(leaving, non_blocking=True)

    def brought(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        """On the accelerator, in that type. What it is copied from may be overwritten at once: it
        is copied on the host before, or read from memory that a copy waits for.
        """
        made = self._pinned_like(tensor.shape, dtype)
        return self._upload(tensor.to(dtype) if made is None else made.copy_(tensor))

    def _pinned_like(self, shape: torch.Size, dtype: torch.dtype) -> Tensor | None:
        """Pinned memory; None: a part of that size does without."""
        size = prod(shape) * dtype.itemsize
        if self._pinned is None or not 0 < size <= PINNED_LANE_BYTES // _PARTS_OF_A_LANE:
            return None
        return self._pinned(size).view(dtype).view(shape)
