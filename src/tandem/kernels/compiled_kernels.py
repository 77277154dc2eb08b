"""A tier in host memory, on the compiled kernels.

Import this module only if `native.available()`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tandem.kernels import _native
from tandem.kernels.dense import AttentionOutput
from tandem.kernels.native_attention import MAX_DECODE_TOKENS, NativeBatch, attention_task
from tandem.kernels.native_pages import copy_now
from tandem.kernels.native_pool import NativePool
from tandem.kernels.pages import PageShape
from tandem.kernels.tier_kernels import PlannedAttention
from tandem.plan.binding import TierAttention


@dataclass(frozen=True, slots=True)
class SplitBatch:
    """The first tokens of a lane by the decode kernel, the others by the prefill kernel."""

    decode: NativeBatch | None
    prefill: NativeBatch | None
    num_tokens: int

    @property
    def decode_plan(self) -> _native.AttentionPlan | None:
        """Of the first tokens; None if there are none."""
        plan = None if self.decode is None else self.decode.plan
        assert not isinstance(plan, _native.PrefillPlan)
        return plan

    @property
    def prefill_plan(self) -> _native.PrefillPlan | None:
        """Of the tokens after those; None if there are none."""
        plan = None if self.prefill is None else self.prefill.plan
        assert not isinstance(plan, _native.AttentionPlan)
        return plan


class CompiledKernels:
    """Attention and appends on a pool of threads.

    Args:
        heads: query heads.
        shape: of one layer's pages.
        scale: of scores. soft_cap: what bounds them; 0: nothing.

    Attributes:
        pool: the threads.
    """

    def __init__(
        self,
        pool: NativePool,
        heads: int,
        shape: PageShape,
        scale: float,
        soft_cap: float = 0.0,
    ) -> None:
        self.pool = pool
        self._heads = heads
        self._shape = shape
        self._scale = scale
        self._soft_cap = soft_cap

    @property
    def shape(self) -> PageShape:
        """As given."""
        return self._shape

    @property
    def name(self) -> str:
        """Instruction set and threads."""
        threads = self.pool.num_threads
        return f"{self.pool.isa} kernels on {threads} thread{'s' if threads > 1 else ''}"

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
        rows, threads = attention.rows(first, last), self.pool.num_threads
        return NativeBatch.from_binding(rows, self._shape, self._heads, threads, window)

    def attend(self, q: Tensor, pages: Tensor, planned: PlannedAttention) -> AttentionOutput:
        """Decode rows, then prefill rows, each on all threads."""
        assert isinstance(planned, SplitBatch)
        out = torch.empty(q.shape, dtype=torch.float32)
        result = AttentionOutput(out, torch.empty(q.shape[:2], dtype=torch.float32))
        for task in self.attend_tasks(q, pages, planned, result):
            task.run()
        return result

    def attend_tasks(
        self, q: Tensor, pages: Tensor, planned: SplitBatch, result: AttentionOutput
    ) -> list[_native.Task]:
        """`attend` into given memory as work that is still to be started, in this order.

        Raises:
            ValueError: tensors that do not fit the batch.
        """
        tasks: list[_native.Task] = []
        first = 0
        for part in (planned.decode, planned.prefill):
            if part is None:
                continue
            tokens = slice(first, first + part.num_tokens)
            own = AttentionOutput(result.out[tokens], result.lse[tokens])
            scale, soft_cap = self._scale, self._soft_cap
            tasks.append(
                attention_task(own, self.pool, q[tokens], pages, part, scale, soft_cap=soft_cap)
            )
            first = tokens.stop
        return tasks

    def sweep(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        slots: Tensor | None,
        pages: Tensor,  # of all layers
        planned: Sequence[SplitBatch],
        layer_plans: Sequence[int],
        result: AttentionOutput,
    ) -> _native.Sweep:
        """Appends and attentions of all layers, from and into the same memory in each, as one work
        that is still to be started.

        Args:
            slots: of the keys, in each layer; None: there are none.
            planned: of rows of a few tokens alone. layer_plans: which of them each layer takes.

        Raises:
            ValueError: tensors that do not fit the batch, or a slot that does not exist.
        """
        plans = [each.decode_plan for each in planned]
        pool, scale, soft_cap = self.pool, self._scale, self._soft_cap
        return _native.sweep(
            pool.handle, pages, plans, layer_plans, q, k, v, slots, *result, scale, soft_cap,
            pool.isa,
        )  # fmt: skip

    def nothing(self) -> _native.Task:
        """Work that only waits and signals."""
        return _native.nothing(self.pool.handle)

    def plan_append(self, slots: Tensor) -> Tensor:
        """The slots themselves."""
        return slots

    def append(self, pages: Tensor, k: Tensor, v: Tensor, planned: Tensor) -> None:
        """Rounded to the pages' element type, or quantized."""
        self.append_task(pages, k, v, planned).run()

    def append_task(self, pages: Tensor, k: Tensor, v: Tensor, planned: Tensor) -> _native.Task:
        """`append` as work that is still to be started.

        Raises:
            ValueError: tensors that do not fit each other, or a slot that does not exist.
        """
        bits, size = self._shape.code_bits, self._shape.block_size
        return _native.append(self.pool.handle, pages, k, v, planned, bits, size)

    def copy_blocks(
        self, src_pages: Tensor, src_ids: Tensor, dst_pages: Tensor, dst_ids: Tensor
    ) -> None:
        """On the pool's threads."""
        copy_now(self.pool, src_pages, src_ids, dst_pages, dst_ids)


def count_short_rows(attention: TierAttention) -> int:
    """Rows before the first with more query tokens than the decode kernel takes."""
    starts = attention.query_start
    too_long = (starts[1:] - starts[:-1] > MAX_DECODE_TOKENS).nonzero()[0]
    return int(too_long[0]) if len(too_long) else len(starts) - 1
