"""What a tier's memory is attended to and appended to with; here the torch reference."""

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from torch import Tensor

from tandem.kernels.attention import AttentionBatch, paged_attention
from tandem.kernels.dense import AttentionOutput
from tandem.kernels.pages import PageShape, append_planned, copy_blocks, plan_append
from tandem.plan.binding import TierAttention

if TYPE_CHECKING:
    from tandem.kernels.static_attention import StaticBatch


class PlannedAttention(Protocol):
    """One tier's part of a lane's attention, made by `TierKernels.plan`."""

    @property
    def num_tokens(self) -> int:
        """Query tokens that take part."""
        ...


class TierKernels(Protocol):
    """Attention over one tier's pages, and writing to them.

    What is planned once per step serves every layer of the same window. A plan goes with the
    kernels that made it.
    """

    @property
    def name(self) -> str:
        """For people: what runs."""
        ...

    @property
    def shape(self) -> PageShape:
        """Of one layer's pages."""
        ...

    def plan(self, attention: TierAttention, window: int = 0) -> PlannedAttention:
        """Decide how the keys are read; `attention.token_index` is None: queries are selected.

        Args:
            window: of the layers that it is for: positions that a token sees; 0: all before it.
        """
        ...

    def attend(self, q: Tensor, pages: Tensor, planned: PlannedAttention) -> AttentionOutput:
        """`attention.paged_attention` of the planned tokens: q `[t, heads, head_dim]`."""
        ...

    def plan_append(self, slots: Tensor) -> Tensor:
        """What `append` needs of slots int64 `[t]`."""
        ...

    def append(self, pages: Tensor, k: Tensor, v: Tensor, planned: Tensor) -> None:
        """`pages.append_kv` of k, v `[t, kv_heads, head_dim]` at what `plan_append` returned."""
        ...

    def copy_blocks(
        self, src_pages: Tensor, src_ids: Tensor, dst_pages: Tensor, dst_ids: Tensor
    ) -> None:
        """`pages.copy_blocks`, ids on the host; both pools in this tier's memory."""
        ...


@runtime_checkable
class StaticKernels(TierKernels, Protocol):
    """Kernels that can be launched again for other rows, by what lies in memory alone."""

    def plan_static(self, position: Tensor, table: Tensor, window: int = 0) -> PlannedAttention:
        """A query of each row, at int64 `position [rows]`, to the keys up to it.

        Args:
            table: int32 [rows, blocks]; beyond a row's own blocks any ids.
            window: as in `plan`.
        """
        ...


@runtime_checkable
class MergingKernels(TierKernels, Protocol):
    """Kernels that merge two tiers' attention in one launch."""

    def merge(
        self, here: AttentionOutput, there: AttentionOutput, places: Tensor, dtype: torch.dtype
    ) -> Tensor:
        """`state.merge_states` of a lane's tokens: `[tokens, heads, head_dim]` in `dtype`.

        Args:
            places: int32 [2, tokens]; where in `here`, and in `there`, each token is, or -1.
        """
        ...


def accelerator_kernels(
    device: torch.device,
    heads: int,
    shape: PageShape,
    scale: float,
    soft_cap: float,
    dtype: torch.dtype,
) -> TierKernels:
    """What attends to pages in an accelerator's memory: Triton's kernels where a GPU takes them.

    Args:
        heads: query heads. shape: of one layer's pages.
        scale: of scores. soft_cap: what bounds them; 0: nothing.
        dtype: of queries.
    """
    if device.type == "cuda":
        from tandem.kernels.triton_support import unit_of

        if (unit := unit_of(device)) is not None:
            from tandem.kernels.triton_kernels import TritonKernels

            return TritonKernels(device, heads, shape, scale, soft_cap, unit, dtype)
    return ReferenceKernels(device, shape, scale, soft_cap)


class ReferenceKernels:
    """The torch kernels, on any device.

    Args:
        device: where the tier's pages are.
        shape: of one layer's pages.
        scale: of scores. soft_cap: what bounds them; 0: nothing.
    """

    def __init__(
        self, device: torch.device, shape: PageShape, scale: float, soft_cap: float = 0.0
    ) -> None:
        self._device = device
        self._shape = shape
        self._scale = scale
        self._soft_cap = soft_cap

    @property
    def shape(self) -> PageShape:
        """As given."""
        return self._shape

    @property
    def name(self) -> str:
        """Torch, and where."""
        return f"torch on {self._device.type}"

    def plan(self, attention: TierAttention, window: int = 0) -> AttentionBatch:
        """Groups and spans of gathered blocks."""
        return AttentionBatch.from_binding(attention, self._device, self._shape, window)

    def plan_static(self, position: Tensor, table: Tensor, window: int = 0) -> "StaticBatch":
        """All blocks of the table."""
        from tandem.kernels.static_attention import StaticBatch

        return StaticBatch(position, table, window)

    def attend(self, q: Tensor, pages: Tensor, planned: PlannedAttention) -> AttentionOutput:
        """Gather, then dense attention."""
        if isinstance(planned, AttentionBatch):
            return paged_attention(q, pages, planned, self._scale, soft_cap=self._soft_cap)
        # Imported where graphs are: a first token waits for what is imported.
        from tandem.kernels.static_attention import StaticBatch, static_attention

        assert isinstance(planned, StaticBatch)
        return static_attention(q, pages, planned, self._shape, self._scale, self._soft_cap)

    def plan_append(self, slots: Tensor) -> Tensor:
        """Rows of float pages, computed once per step; slots of quantized ones."""
        return plan_append(slots, self._shape)

    def append(self, pages: Tensor, k: Tensor, v: Tensor, planned: Tensor) -> None:
        """Indexed copies."""
        append_planned(pages, k, v, planned, self._shape)

    def copy_blocks(
        self, src_pages: Tensor, src_ids: Tensor, dst_pages: Tensor, dst_ids: Tensor
    ) -> None:
        """Indexed copies."""
        copy_blocks(src_pages, src_ids, dst_pages, dst_ids)
