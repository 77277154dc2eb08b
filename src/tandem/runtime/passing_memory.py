"""Memory of KV that passes through the accelerator, and of activations that it is remade from."""

from collections.abc import Callable

import torch
from torch import Tensor

from tandem.devices.host_memory import bulk_memory
from tandem.memory.page import KVPageSpec
from tandem.models.weights import torch_dtype
from tandem.plan.block_room import BlockRoom
from tandem.plan.block_shape import CACHE_SLOTS

_CPU = torch.device("cpu")


class PassingMemory:
    """Slots on the accelerator, each of one layer, and the host's store of activations.

    Args:
        page: of KV in both memories.
        hidden_size, dtype: of activations.
        pin: makes host memory known to the device; returns what undoes it. None: not needed.

    Attributes:
        slots: by slot, `[slot_blocks, *page_shape]`.
        recomputed: `[recomputed_blocks, *page_shape]`.
        prefixes: by slot, activations [tokens, hidden] of a batch's prefixes.
        activations: on the host, [layers, entries, hidden].
    """

    def __init__(
        self,
        room: BlockRoom,
        page: KVPageSpec,
        hidden_size: int,
        dtype: torch.dtype,
        device: torch.device,
        pin: Callable[[Tensor], Callable[[], None]] | None = None,
    ) -> None:
        held = torch_dtype(page.float_type)
        blocks, tokens = room.slot_blocks, room.recomputed_blocks * page.block_size
        self.slots = torch.zeros((CACHE_SLOTS, blocks, *page.page_shape), dtype=held, device=device)
        self.recomputed = torch.zeros(
            (room.recomputed_blocks, *page.page_shape), dtype=held, device=device
        )
        self.prefixes = torch.zeros((CACHE_SLOTS, tokens, hidden_size), dtype=dtype, device=device)
        self.activations = bulk_memory(
            (page.num_layers, room.prefix_entries, hidden_size), dtype, _CPU
        )
        self._unpin: Callable[[], None] | None = None
        if pin is not None and room.prefix_entries:
            self._unpin = pin(self.activations)

    @property
    def device_bytes(self) -> int:
        """On the accelerator."""
        return self.slots.nbytes + self.recomputed.nbytes + self.prefixes.nbytes

    @property
    def host_bytes(self) -> int:
        """Activations."""
        return self.activations.nbytes

    def close(self) -> None:
        """Unpin; nothing may be in flight."""
        if self._unpin is not None:
            self._unpin()
            self._unpin = None
