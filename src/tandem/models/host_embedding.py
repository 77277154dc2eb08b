"""Token embeddings in host memory, where an accelerator reads the rows that it needs."""

from collections.abc import Callable

import torch
from torch import Tensor

from tandem.devices.host_memory import bulk_memory
from tandem.models.disk_weights import Pin


class HostEmbedding:
    """A table that is looked up on the accelerator but lies in the host's memory.

    A CUDA device reads pinned memory over the link by itself, so that ids that it has just sampled
    need not come to the host first: a lookup is the same operation, wherever the table lies (ADR
    0030).

    Args:
        shape: [vocabulary, hidden].
        device: that looks rows up.
        pin: makes the memory known to it.

    Attributes:
        stored: what a checkpoint is read into.
        seen: the same memory as a tensor of `device`; only to be read there.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,
        pin: Pin | None = None,
    ) -> None:
        self.stored: Tensor = bulk_memory(shape, dtype, torch.device("cpu"))
        self._unpin: Callable[[], None] | None = None if pin is None else pin(self.stored)
        self.seen: Tensor = self.stored
        if device.type == "cuda":
            from tandem.devices.cuda.memory import as_seen_by

            self.seen = as_seen_by(device, self.stored)

    @property
    def size_bytes(self) -> int:
        """Of host memory."""
        return self.stored.nbytes

    @property
    def pinned_bytes(self) -> int:
        """Of it, what is known to the accelerator."""
        return 0 if self._unpin is None else self.stored.nbytes

    def close(self) -> None:
        """Let the device forget the memory; nothing may be in flight."""
        if self._unpin is not None:
            self._unpin()
            self._unpin = None
