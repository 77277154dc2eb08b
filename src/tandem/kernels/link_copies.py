"""KV blocks between host memory that a device knows and the device's own, over the link.

Nothing passes through pageable memory, where a copy would wait for the host and take twice as long.
Blocks that follow each other in both pools go by the device's copy engines. Where they are
scattered, and so small that launching a copy for each would take longer than the link does, a
kernel of the device reads or writes the host's memory itself. Or all copies are handed to the
driver in one call, where that is asked for.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tandem.devices.cuda.device import compute_capability, stream_handle
from tandem.devices.cuda.memory import as_seen_by
from tandem.kernels.pages import require_alike
from tandem.kernels.tiles import USUAL_TILES, tiles_for
from tandem.kernels.upload import upload
from tandem.plan.binding import LongArray

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tandem.devices.batch_copies import BatchCopies

_WORD_BYTES = 8

_Pool = tuple[int, int]  # address and bytes


class BlockRun(NamedTuple):
    """Blocks that follow each other in both pools."""

    source: int
    target: int
    count: int


def find_runs(src_ids: LongArray, dst_ids: LongArray) -> list[BlockRun]:
    """Block `src_ids[i]` goes to `dst_ids[i]`: as few runs as their order allows."""
    if not len(src_ids):
        return []
    breaks = np.flatnonzero((np.diff(src_ids) != 1) | (np.diff(dst_ids) != 1)) + 1
    starts = np.concatenate(([0], breaks))
    counts = np.diff(np.concatenate((starts, [len(src_ids)])))
    columns = (src_ids[starts], dst_ids[starts], counts)
    return [BlockRun(*map(int, run)) for run in zip(*columns, strict=True)]


class LinkCopies:
    """Copies whole blocks between one device's memory and the host's, in stream order.

    What the device is, and what a pool is to it, is asked when it is seen first: each question is
    one to the driver. Pools in host memory must therefore live, and stay pinned or not, as long as
    this object is used; those on the device may come and go.

    Args:
        batches: takes copies from and to pinned memory, which nothing else decides then.
    """

    def __init__(self, device: torch.device, batches: "BatchCopies | None" = None) -> None:
        self._device, self._batches = device, batches
        self._least_bytes = least_copy_bytes(device)
        self._pinned: dict[_Pool, bool] = {}
        self._seen: dict[_Pool, Tensor] = {}

    def copy(
        self,
        src_pages: Tensor,  # [layers, num_src_blocks, ...page]; one of them on the device
        src_ids: Tensor,  # int64 [n], on the host
        dst_pages: Tensor,  # [layers, num_dst_blocks, ...page]; in place
        dst_ids: Tensor,  # int64 [n], on the host
    ) -> None:
        """Copy blocks of all layers on the current stream, without waiting for it.

        Raises:
            ValueError: the pools differ in element type, layers or page shape.
        """
        require_alike(src_pages, dst_pages)
        runs = find_runs(src_ids.numpy(), dst_ids.numpy())
        if not runs:
            return
        from_host = src_pages.device.type == "cpu"
        host = src_pages if from_host else dst_pages
        pinned = self._is_pinned(host)
        if pinned and self._batches is not None:
            stream = stream_handle(self._device)
            copy_batched(src_pages, dst_pages, runs, self._batches, stream)
            return
        block_bytes = int(_block_bytes(src_pages))
        few = len(src_ids) * block_bytes >= len(runs) * self._least_bytes
        if few or block_bytes % _WORD_BYTES or not pinned:
            copy_runs(src_pages, dst_pages, runs)
            return
        seen = self._as_seen(host)
        near, far = (seen, dst_pages) if from_host else (src_pages, seen)
        gather_blocks(near, self._upload(src_ids), far, self._upload(dst_ids))

    def _is_pinned(self, host: Tensor) -> bool:
        key = host.data_ptr(), host.nbytes
        known = self._pinned.get(key)
        if known is None:
            known = self._pinned[key] = host.is_pinned()
        return known

    def _as_seen(self, host: Tensor) -> Tensor:
        key = host.data_ptr(), host.nbytes
        known = self._seen.get(key)
        if known is None:
            known = self._seen[key] = as_seen_by(self._device, host)
        return known

    def _upload(self, ids: Tensor) -> Tensor:
        return upload(ids.numpy(), self._device)


def least_copy_bytes(device: torch.device) -> int:
    """See `TileSettings`."""
    tiles = tiles_for(compute_capability(device)) if device.type == "cuda" else USUAL_TILES
    return tiles.least_copy_bytes


def copy_runs(src_pages: Tensor, dst_pages: Tensor, runs: list[BlockRun]) -> None:
    """A copy for each run of each layer."""
    for source, target in zip(src_pages, dst_pages, strict=True):
        for run in runs:
            part = source[run.source : run.source + run.count]
            target[run.target : run.target + run.count].copy_(part, non_blocking=True)


def copy_batched(
    src_pages: Tensor,
    dst_pages: Tensor,
    runs: list[BlockRun],
    batches: "BatchCopies",
    stream: int,
) -> None:
    """As `copy_runs`, by one call for all layers."""
    sources, targets, counts = np.array(runs, dtype=np.uint64).reshape(-1, 3).T
    sizes = np.tile(counts * _block_bytes(src_pages), len(src_pages))
    batches.copy(_places(dst_pages, targets), _places(src_pages, sources), sizes, stream)


def _places(pages: Tensor, blocks: "NDArray[np.uint64]") -> "NDArray[np.uint64]":
    """Addresses of blocks, layer by layer: uint64 [layers * blocks]."""
    layer_bytes = np.uint64(pages.stride(0) * pages.element_size())
    layers = np.arange(len(pages), dtype=np.uint64) * layer_bytes
    places = layers[:, None] + blocks * _block_bytes(pages)
    return (places + np.uint64(pages.data_ptr())).reshape(-1)


def _block_bytes(pages: Tensor) -> np.uint64:
    return np.uint64(pages.stride(1) * pages.element_size())


def gather_blocks(src_pages: Tensor, src_ids: Tensor, dst_pages: Tensor, dst_ids: Tensor) -> None:
    """By kernels of a device that reaches both pools and the ids; layer by layer, which bounds what
    lies between.
    """
    for source, target in zip(_words(src_pages), _words(dst_pages), strict=True):
        target.index_copy_(0, dst_ids, source.index_select(0, src_ids))


def _words(pages: Tensor) -> Tensor:
    """Blocks as rows of eight bytes at a time, so that few requests cross the link: int64 [layers,
    blocks, words].
    """
    return pages.flatten(2).view(torch.int64)
