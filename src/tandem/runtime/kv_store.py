"""The tensors behind the block pools: canonical pages per tier (contract 7)."""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from tandem.devices.host_memory import bulk_zeros
from tandem.memory.page import KVPageSpec
from tandem.models.weights import torch_dtype
from tandem.plan.program import Queue
from tandem.runtime.buffers import DeviceAccessError
from tandem.spec.tier import Tier

_REACH = {
    Tier.DEVICE: frozenset({Queue.ACCEL, Queue.H2D, Queue.D2H}),
    Tier.HOST: frozenset({Queue.CPU, Queue.H2D, Queue.D2H}),
}


class KVStore:
    """Pages `[layers, blocks, *page.on(tier).page_shape]` of each tier.

    Args:
        blocks: pool size per tier; zero-size pools get an empty tensor.
        devices: where each tier's tensor lives.
        dtypes: element types of the tiers' pages; by default what they hold.
        pin: makes host pages known to the accelerator; returns what undoes it. None: not needed.
        pinned_blocks: of each layer, how many of the host's first blocks are; None: all.
        spare: tiers with a block more than the pool's, behind it: nobody's, to be written to by
            rows that pad a step.
    """

    def __init__(
        self,
        page: KVPageSpec,
        blocks: dict[Tier, int],
        devices: dict[Tier, torch.device],
        *,
        dtypes: Mapping[Tier, torch.dtype] | None = None,
        pin: Callable[[torch.Tensor], Callable[[], None]] | None = None,
        pinned_blocks: int | None = None,
        spare: frozenset[Tier] = frozenset(),
    ) -> None:
        self.page = page
        self._counts = dict(blocks)
        self._spare = spare
        self._pages: dict[Tier, torch.Tensor] = {}
        self._unpin: list[Callable[[], None]] = []
        self.pinned_bytes = 0
        """Of host pages that are known to the accelerator."""
        for tier, count in blocks.items():
            own = page.on(tier)
            dtype = held_type(own) if dtypes is None else dtypes[tier]
            shape = (page.num_layers, count + (tier in spare), *own.page_shape)
            self._pages[tier] = _zero_pages(shape, dtype, devices[tier])
        self._layers = {tier: pages.unbind(0) for tier, pages in self._pages.items()}
        if pin is not None:
            count = blocks.get(Tier.HOST, 0)
            self._pin(pin, count, count if pinned_blocks is None else pinned_blocks)

    def _pin(
        self, pin: Callable[[torch.Tensor], Callable[[], None]], count: int, pinned: int
    ) -> None:
        """All of them at once, or some of each layer, which do not lie in one piece."""
        if not pinned:
            return
        pages = self._pages[Tier.HOST]
        parts = [pages] if pinned == count else [layer[:pinned] for layer in pages.unbind(0)]
        for part in parts:
            self._unpin.append(pin(part))
            self.pinned_bytes += part.nbytes

    def close(self) -> None:
        """Unpin the host's pages; nothing may be copying them, or copy them later."""
        while self._unpin:
            self._unpin.pop()()
        self.pinned_bytes = 0

    def size_bytes(self, tier: Tier) -> int:
        """Bytes of a tier's pages, without a spare block."""
        pages = self._pages[tier]
        return pages[:, : self._counts[tier]].numel() * pages.element_size()

    def spare_bytes(self, tier: Tier) -> int:
        """Of the tier's block that is nobody's; 0 if it has none."""
        pages = self._pages[tier]
        return pages.numel() * pages.element_size() - self.size_bytes(tier)

    def spare_block(self, tier: Tier) -> int:
        """Id of the tier's block that is nobody's.

        Raises:
            ValueError: it has none.
        """
        if tier not in self._spare:
            raise ValueError(f"the {tier.label} tier has no spare block")
        return self._counts[tier]

    def layer(self, tier: Tier, layer: int, queue: Queue) -> torch.Tensor:
        """Pages of one layer: `[blocks, *page.on(tier).page_shape]`.

        Raises:
            DeviceAccessError: `queue` cannot reach the tier's memory.
        """
        _check_reach(tier, queue)
        return self._layers[tier][layer]

    def all_layers(self, tier: Tier, queue: Queue) -> torch.Tensor:
        """Pages of all layers.

        Raises:
            DeviceAccessError: `queue` cannot reach the tier's memory.
        """
        _check_reach(tier, queue)
        return self._pages[tier]

    def bytes_in_host_memory(self, tier: Tier) -> NDArray[np.uint8]:
        """Pages of a tier as threads beside the queues reach them: uint8 [layers, blocks, bytes].

        Raises:
            DeviceAccessError: they are not in host memory.
        """
        pages = self._pages[tier]
        if pages.device.type != "cpu":
            raise DeviceAccessError(f"the {tier.label} tier's pages are not in host memory")
        return pages.flatten(2).view(torch.uint8).numpy()


def held_type(page: KVPageSpec) -> torch.dtype:
    """Of a tier's tensor: the element type, or bytes if that has none of torch's."""
    return torch.uint8 if page.held_in_bytes else torch_dtype(page.float_type)


def _check_reach(tier: Tier, queue: Queue) -> None:
    if queue not in _REACH[tier]:
        raise DeviceAccessError(f"queue {queue} cannot reach the {tier.label} tier's pages")


def _zero_pages(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeroed pages; in host memory a large pool costs nothing before it is used or pinned."""
    if device.type == "cpu":
        return bulk_zeros(shape, dtype)
    return torch.zeros(shape, dtype=dtype, device=device)
