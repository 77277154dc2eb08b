"""A decoding step's numbers, padded to a bucket of rows, and where a graph finds them."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tandem.plan.binding import IntArray, LaneBinding, LongArray
from tandem.runtime.graph_maker import GraphMaker
from tandem.spec.tier import Tier


@dataclass(frozen=True, slots=True)
class DecodeArrays:
    """One step's numbers on the host.

    Rows that pad it read and write the spare block alone, and the slot of row 0, which they read.

    Attributes:
        rows: those that are meant.
        numbers: int64 [4, bucket]; token ids (-1: the row's last), places in the slot table,
            positions, KV slots.
        table: int32 [bucket, blocks of the longest row]; the spare block behind a row's own.
    """

    rows: int
    numbers: LongArray
    table: IntArray

    @staticmethod
    def of(binding: LaneBinding, bucket: int, spare: int, block_size: int) -> "DecodeArrays":
        """Of a lane that `decodes_on_accelerator`; copies, since later steps write into tables.

        Args:
            spare: id of the block that is nobody's.
        """
        rows, positions = binding.num_tokens, binding.positions.astype(np.int64)
        numbers = np.zeros((4, bucket), dtype=np.int64)
        numbers[0, :rows] = binding.token_ids
        numbers[1, :rows] = binding.token_rows
        numbers[2, :rows] = positions
        numbers[3] = spare * block_size
        numbers[3, :rows] = binding.append[Tier.DEVICE].slots
        own = positions // block_size + 1
        table = np.full((bucket, int(own.max())), spare, dtype=np.int32)
        given = binding.attention[Tier.DEVICE].block_table[:, : table.shape[1]]
        is_own = np.arange(table.shape[1]) < own[:, None]
        np.copyto(table[:rows], given, where=is_own)
        return DecodeArrays(rows, numbers, table)

    @staticmethod
    def alike(
        bucket: int, token: int, position: int, spare: int, block_size: int
    ) -> "DecodeArrays":
        """Rows of one token at one position, all in the spare block, where they write the same."""
        slot = spare * block_size + position
        numbers = np.repeat(np.array([[token], [0], [position], [slot]]), bucket, axis=1)
        table = np.full((bucket, 1), spare, dtype=np.int32)
        return DecodeArrays(bucket, numbers.astype(np.int64), table)

    @property
    def bucket(self) -> int:
        """Rows with those that pad it."""
        return self.numbers.shape[1]

    @property
    def slots(self) -> LongArray:
        """Where keys and values are written: int64 [bucket]."""
        return self.numbers[3]


@dataclass(frozen=True, slots=True)
class BucketInputs:
    """Views of a bucket's numbers on the device: `numbers` [4, bucket], `table` [bucket, blocks].

    Attributes:
        order: int64 [bucket]; 0, 1, ...
    """

    numbers: Tensor
    table: Tensor
    order: Tensor


class DecodeInputs:
    """Memory on the device that graphs of all buckets read, one at a time.

    Args:
        max_rows: of the largest bucket. max_blocks: of a row.
        spare: a block's id that tables are filled with.
    """

    def __init__(self, max_rows: int, max_blocks: int, spare: int, device: torch.device) -> None:
        self._numbers = torch.zeros(4 * max_rows, dtype=torch.int64, device=device)
        self._table = torch.full((max_rows, max_blocks), spare, dtype=torch.int32, device=device)
        self._order = torch.arange(max_rows, device=device)

    def of(self, bucket: int) -> BucketInputs:
        """A bucket's part of it."""
        numbers = self._numbers[: 4 * bucket].view(4, bucket)
        return BucketInputs(numbers, self._table[:bucket], self._order[:bucket])

    def fill(self, arrays: DecodeArrays, maker: GraphMaker) -> None:
        """Bring a step's numbers, in the order of the current queue."""
        into = self.of(arrays.bucket)
        maker.bring(torch.from_numpy(arrays.numbers), into.numbers)
        table = torch.from_numpy(arrays.table)
        maker.bring(table, into.table[:, : table.shape[1]])
