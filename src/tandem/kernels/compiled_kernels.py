"""A tier in host memory, on the compiled kernels.

Import this module only if `native.available()`.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tandem.kernels.dense import AttentionOutput
from tandem.kernels.native_attention import MAX_DECODE_TOKENS, NativeBatch, attend_into
from tandem.kernels.native_pages import append_now, copy_now
from tandem.kernels.native_pool import NativePool
from tandem.kernels.pages import PageShape, copy_blocks
from tandem.kernels.tier_kernels import PlannedAttention
from tandem.plan.binding import TierAttention


@dataclass(frozen=True, slots=True)
class SplitBatch:
    """The first tokens of a lane by the decode kernel, the others by the prefill kernel."""

    decode: NativeBatch | None
    prefill: NativeBatch | None
    num_tokens: int


class CompiledKernels:
    """Attention and appends on a pool of threads.

    Args:
        heads: query heads.
        shape: of one layer's pages.
        scale: of scores. soft_cap: what bounds them; 0: nothing.
    """

    def __init__(
        self,
        pool: NativePool,
        heads: int,
        shape: PageShape,
        scale: float,
        soft_cap: float = 0.0,
    ) -> None:
        self._pool = pool
        self._heads = heads
        self._shape = shape
        self._scale = scale
        self._soft_cap = soft_cap

    @property
    def name(self) -> str:
        """Instruction set and threads."""
        threads = self._pool.num_threads
        return f"{self._pool.isa} kernels on {threads} thread{'s' if threads > 1 else ''}"

    def plan(self, attention: TierAttention, window: int = 0) -> SplitBatch:
        """Rows up to the first that is too long for the decode kernel, and the rest."""
        short, rows = count_short_rows(attention), len(attention.block_table)
        return SplitBatch(
            decode=self._plan_rows(attention, 0, short, window) if short else None,
            prefill=self._plan_rows(attention, short, rows, window) if short < rows else None,
            num_tokens=int(attention.query_start[-1]),
        )

    def _plan_rows(
        self, attention: TierAttention, first: int, last: int, window: int
    ) -> NativeBatch:
        rows, threads = rows_of(attention, first, last), self._pool.num_threads
        return NativeBatch.from_binding(rows, self._shape, self._heads, threads, window)

    def attend(self, q: Tensor, pages: Tensor, planned: PlannedAttention) -> AttentionOutput:
        """Decode rows, then prefill rows, each on all threads."""
        assert isinstance(planned, SplitBatch)
        out = torch.empty(q.shape, dtype=torch.float32)
        lse = torch.empty(q.shape[:2], dtype=torch.float32)
        first = 0
        for part in (planned.decode, planned.prefill):
            if part is None:
                continue
            tokens = slice(first, first + part.num_tokens)
            result = AttentionOutput(out[tokens], lse[tokens])
            attend_into(
                result,
                self._pool,
                q[tokens],
                pages,
                part,
                self._scale,
                soft_cap=self._soft_cap,
            )
            first = tokens.stop
        return AttentionOutput(out, lse)

    def plan_append(self, slots: Tensor) -> Tensor:
        """The slots themselves."""
        return slots

    def append(self, pages: Tensor, k: Tensor, v: Tensor, planned: Tensor) -> None:
        """Rounded to the pages' element type."""
        append_now(self._pool, pages, k, v, planned)

    def copy_blocks(
        self, src_pages: Tensor, src_ids: Tensor, dst_pages: Tensor, dst_ids: Tensor
    ) -> None:
        """On the pool's threads where both ends are host memory; otherwise through torch."""
        if src_pages.device.type == dst_pages.device.type == "cpu":
            copy_now(self._pool, src_pages, src_ids, dst_pages, dst_ids)
        else:
            copy_blocks(src_pages, src_ids, dst_pages, dst_ids)


def count_short_rows(attention: TierAttention) -> int:
    """Rows before the first with more query tokens than the decode kernel takes."""
    starts = attention.query_start
    too_long = (starts[1:] - starts[:-1] > MAX_DECODE_TOKENS).nonzero()[0]
    return int(too_long[0]) if len(too_long) else len(starts) - 1


def rows_of(attention: TierAttention, first: int, last: int) -> TierAttention:
    """Rows `first` to `last` (exclusive) of a tier's attention whose queries are selected already.

    Raises:
        ValueError: its tokens are still to be selected.
    """
    if attention.token_index is not None:
        raise ValueError("select the tokens before dividing rows")
    if first == 0 and last == len(attention.block_table):
        return attention
    starts = attention.query_start[first : last + 1]
    index = attention.block_index
    return replace(
        attention,
        query_start=starts - starts[0],
        num_decode=min(max(attention.num_decode - first, 0), last - first),
        positions=attention.positions[starts[0] : starts[-1]],
        block_table=attention.block_table[first:last],
        block_index=None if index is None else index[first:last],
    )
