"""A hybrid decoding step's numbers, padded to a bucket of rows, and where a graph finds them."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tandem.plan.binding import IntArray, LaneBinding, LongArray
from tandem.plan.hybrid_sweep import HybridRows
from tandem.runtime.graph_maker import GraphMaker
from tandem.runtime.host_link import LinkRows
from tandem.spec.tier import Tier


@dataclass(frozen=True, slots=True)
class HybridArrays:
    """One step's numbers on the host.

    Attributes:
        rows: those that are meant. link: those of them that the host attends to.
        numbers: int64 [5, bucket]; token ids (-1: the row's last), places in the slot table,
            positions, KV slots on the accelerator (the spare block's of tokens that go to the
            host), keys on the accelerator less one.
        table: int32 [bucket, blocks of the longest row there].
        places: int32 [2, bucket]; as `LaneContext.places`, of all rows and of those on the host.
    """

    rows: int
    link: LinkRows
    numbers: LongArray
    table: IntArray
    places: IntArray

    @staticmethod
    def of(
        binding: LaneBinding, rows: HybridRows, link: LinkRows, bucket: int, spare: int,
        block_size: int,
    ) -> "HybridArrays":  # fmt: skip
        """Of a lane with such rows; copies, since later steps write into tables."""
        count, here = binding.num_tokens, rows.here
        numbers = np.zeros((5, bucket), dtype=np.int64)
        numbers[0, :count] = binding.token_ids
        numbers[1, :count] = binding.token_rows
        numbers[2, :count] = binding.positions
        numbers[3], numbers[4] = spare * block_size, -1
        numbers[4, :count] = rows.keys_here - 1
        if len(rows.put_here):
            numbers[3, rows.put_here] = binding.append[Tier.DEVICE].slots
        table = np.full((bucket, 1), spare, dtype=np.int32)
        if len(here):
            own = -(-rows.keys_here[here] // block_size)
            table = np.full((bucket, int(own.max())), spare, dtype=np.int32)
            given = binding.attention[Tier.DEVICE].block_table[:, : table.shape[1]]
            is_own = np.arange(table.shape[1]) < own[:, None]
            table[here] = np.where(is_own, given, spare)
        places = np.full((2, bucket), -1, dtype=np.int32)
        places[0, here] = here
        places[1, rows.there] = np.arange(len(rows.there))
        return HybridArrays(count, link, numbers, table, places)

    @staticmethod
    def alike(
        link: LinkRows, bucket: int, token: int, position: int, spare: int, block_size: int
    ) -> "HybridArrays":
        """Rows of one token at one position, all in the spare block, where they write and read the
        same; but for those of `link`, whose tokens come to be others: they write where nobody
        reads.
        """
        slot = spare * block_size + position
        numbers = np.repeat([[token], [0], [position], [slot], [position]], bucket, axis=1)
        numbers[3, link.rows], numbers[4, link.rows] = (spare + 1) * block_size - 1, -1
        places = np.tile(np.arange(bucket, dtype=np.int32), (2, 1))
        places[1] = -1
        places[:, link.rows] = [np.full(len(link.rows), -1), np.arange(len(link.rows))]
        table = np.full((bucket, 1), spare, dtype=np.int32)
        return HybridArrays(bucket, link, numbers.astype(np.int64), table, places)

    @property
    def bucket(self) -> int:
        """Rows with those that pad it."""
        return self.numbers.shape[1]


@dataclass(frozen=True, slots=True)
class HybridViews:
    """Views of a bucket's numbers on the device: see `HybridArrays`."""

    numbers: Tensor
    table: Tensor
    places: Tensor


class HybridInputs:
    """Memory on the device that graphs of all buckets read, one at a time."""

    def __init__(self, max_rows: int, max_blocks: int, spare: int, device: torch.device) -> None:
        self._numbers = torch.zeros(5 * max_rows, dtype=torch.int64, device=device)
        self._places = torch.zeros(2 * max_rows, dtype=torch.int32, device=device)
        self._table = torch.full((max_rows, max_blocks), spare, dtype=torch.int32, device=device)

    def of(self, bucket: int) -> HybridViews:
        """A bucket's part of it."""
        return HybridViews(
            self._numbers[: 5 * bucket].view(5, bucket),
            self._table[:bucket],
            self._places[: 2 * bucket].view(2, bucket),
        )

    def fill(self, arrays: HybridArrays, maker: GraphMaker) -> None:
        """Bring a step's numbers, in the order of the current queue."""
        into = self.of(arrays.bucket)
        maker.bring(torch.from_numpy(arrays.numbers), into.numbers)
        maker.bring(torch.from_numpy(arrays.places), into.places)
        table = torch.from_numpy(arrays.table)
        maker.bring(table, into.table[:, : table.shape[1]])
