"""Memory of KV that passes through the accelerator, and of activations that it is remade from."""

from collections.abc import Callable

import torch
from torch import Tensor

from tandem.devices.host_memory import bulk_memory
from tandem.kernels.tier_kernels import TierKernels
from tandem.memory.page import KVPageSpec
from tandem.plan.block_room import BlockRoom
from tandem.plan.block_shape import CACHE_SLOTS
from tandem.runtime.kv_store import held_type
from tandem.spec.tier import Tier

_CPU = torch.device("cpu")


class PassingMemory:
    """Slots on the accelerator, each of one layer, and the host's store of activations.

    KV passes as it lies on the host, in few bits perhaps: a copy is one of bytes, and the
    accelerator's kernels read and write slots as they are. What is made anew is the accelerator's.

    Args:
        page: of KV in both memories.
        kernels: attend to slots, and append to them.
        hidden_size, dtype: of activations.
        pin: makes host memory known to the device; returns what undoes it. None: not needed.

    Attributes:
        slots: by slot, `[slot_blocks, *page.on(Tier.HOST).page_shape]`.
        recomputed: `[recomputed_blocks, *page_shape]`.
        prefixes: by slot, activations [tokens, hidden] of a batch's prefixes.
        activations: on the host, [layers, entries, hidden].
    """

    def __init__(
        self,
        room: BlockRoom,
        page: KVPageSpec,
        kernels: TierKernels,
        hidden_size: int,
        dtype: torch.dtype,
        device: torch.device,
        pin: Callable[[Tensor], Callable[[], None]] | None = None,
    ) -> None:
        self.kernels = kernels
        passes, tokens = page.on(Tier.HOST), room.recomputed_blocks * page.block_size
        slots = (CACHE_SLOTS, room.slot_blocks, *passes.page_shape)
        self.slots = torch.zeros(slots, dtype=held_type(passes), device=device)
        made = (room.recomputed_blocks, *page.page_shape)
        self.recomputed = torch.zeros(made, dtype=held_type(page), device=device)
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

    @property
    def pinned_bytes(self) -> int:
        """Of activations, if they are known to the accelerator."""
        return 0 if self._unpin is None else self.activations.nbytes

    def close(self) -> None:
        """Unpin; nothing may be in flight."""
        if self._unpin is not None:
            self._unpin()
            self._unpin = None
