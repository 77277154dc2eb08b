"""A tier in a GPU's memory, on Triton kernels.

Import this module only if `triton_support.available()`.
"""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from tandem.kernels.attention import AttentionBatch, paged_attention
from tandem.kernels.dense import AttentionOutput
from tandem.kernels.pages import PageShape, copy_blocks
from tandem.kernels.tier_kernels import PlannedAttention
from tandem.kernels.triton_append import append_codes, append_floats
from tandem.kernels.triton_code_attention import attend_codes
from tandem.kernels.triton_float_attention import attend_floats
from tandem.kernels.triton_group_attention import attend_groups
from tandem.kernels.triton_merge import merge_splits, merge_tiers
from tandem.kernels.triton_plan import (
    DECODE_SPLIT_KEYS,
    MAX_SPLITS,
    HeadShape,
    Tiles,
    TileShape,
    TritonBatch,
    plan_rows,
    plan_tiles,
    power_of_two,
    shape_over_bytes,
)
from tandem.kernels.triton_support import TritonDevice
from tandem.kernels.whole_tokens import with_whole_tokens
from tandem.plan.binding import TierAttention


@dataclass(frozen=True, slots=True)
class DividedBatch:
    """Rows of one token by Triton; the others, too, or by torch where it lacks matrix units."""

    tiled: TritonBatch
    others: AttentionBatch | None
    num_tokens: int


class TritonKernels:
    """Attention and appends where the pages lie.

    Args:
        device: where the tier's pages are.
        heads: query heads.
        shape: of one layer's pages.
        scale: of scores. soft_cap: what bounds them; 0: nothing.
        unit: what the device has.
        query_dtype: of queries, in which products are taken (sums are float32).
    """

    def __init__(
        self,
        device: torch.device,
        heads: int,
        shape: PageShape,
        scale: float,
        soft_cap: float,
        unit: TritonDevice,
        query_dtype: torch.dtype,
    ) -> None:
        self._device = device
        self._shape = shape
        self._scale = scale
        self._soft_cap = soft_cap
        self._unit = unit
        group = heads // shape.kv_heads
        elements = shape.quantized.row_elements if shape.code_bits else shape.head_dim
        self._heads = HeadShape(
            shape.kv_heads, group, elements, query_dtype.itemsize, shape.code_bits
        )

    @property
    def shape(self) -> PageShape:
        """As given."""
        return self._shape

    @property
    def name(self) -> str:
        """Triton, and how it multiplies."""
        return "Triton kernels" if self._unit.has_dot else "Triton kernels without matrix units"

    def plan(self, attention: TierAttention, window: int = 0) -> DividedBatch:
        """Tiles; without matrix units, rows of several tokens are gathered for torch."""
        size, num_decode = self._shape.block_size, attention.num_decode
        num_tokens, rows = int(attention.query_start[-1]), len(attention.block_table)
        others = None
        if not self._unit.has_dot and num_decode < rows:
            rest = attention.rows(num_decode, rows)
            others = AttentionBatch.from_binding(rest, self._device, self._shape, window)
            attention = attention.rows(0, num_decode)
        tiled = plan_tiles(attention, size, self._heads, self._unit, self._device, window)
        return DividedBatch(tiled, others, num_tokens)

    def plan_static(self, position: Tensor, table: Tensor, window: int = 0) -> DividedBatch:
        """A tile for each row; splits by the table's width."""
        size = self._shape.block_size
        tiled = plan_rows(position, table, size, self._heads, self._unit, window)
        return DividedBatch(tiled, None, tiled.num_tokens)

    def attend(self, q: Tensor, pages: Tensor, planned: PlannedAttention) -> AttentionOutput:
        """`attention.paged_attention` of the planned tokens: q `[t, heads, head_dim]`."""
        assert isinstance(planned, DividedBatch)
        tiled, others = planned.tiled, planned.others
        out = torch.empty(q.shape, dtype=torch.float32, device=q.device)
        result = AttentionOutput(out, torch.empty(q.shape[:2], dtype=out.dtype, device=q.device))
        q = q.contiguous()
        for tiles in tiled.tiles:
            self._attend_tiles(q, pages, tiled, tiles, result)
        if others is not None:
            own = q[tiled.num_tokens :]
            part = paged_attention(own, pages, others, self._scale, soft_cap=self._soft_cap)
            result.out[tiled.num_tokens :] = part.out
            result.lse[tiled.num_tokens :] = part.lse
        return result

    def _attend_tiles(
        self, q: Tensor, pages: Tensor, batch: TritonBatch, tiles: Tiles, result: AttentionOutput
    ) -> None:
        target = result
        if tiles.splits > 1:
            count = tiles.tokens.stop  # splits are of tokens from the first on
            out = result.out.new_empty((tiles.splits, count, *q.shape[1:]))
            target = AttentionOutput(out, out.new_empty(out.shape[:3]))
        page, heads, shape = self._shape, self._heads, tiles.shape
        if pages.dtype is torch.uint8 and not page.code_bits:
            shape = shape_over_bytes(shape, heads, self._unit)
        launch, held, built_in = self._kernel(pages, shape)
        launch[(len(tiles.row), heads.kv_heads, tiles.splits)](
            q,
            *held,
            tiles.row,
            tiles.token,
            tiles.count,
            batch.first,
            batch.end,
            batch.table,
            target.out,
            target.lse,
            target.out.shape[-3],
            batch.table.shape[1],
            self._scale,
            self._soft_cap,
            KV_HEADS=heads.kv_heads,
            GROUP=heads.group,
            HEAD_DIM=page.head_dim,
            BLOCK_SIZE=page.block_size,
            ROWS=shape.rows,
            KEYS=shape.keys,
            LEAST_KEYS=DECODE_SPLIT_KEYS,
            HAS_CAP=bool(self._soft_cap),
            num_stages=shape.stages,
            num_warps=shape.warps,
            **built_in,
        )
        if tiles.splits > 1:
            self._merge(target, result)

    def _kernel(
        self, pages: Tensor, shape: TileShape
    ) -> tuple[Any, tuple[Tensor, ...], dict[str, int]]:
        """What serves these pages, how it is given them, and what only it has built in."""
        page = self._shape
        if not page.code_bits:
            own: dict[str, int] = {"HALVES": shape.halves, "HAS_E4M3": self._unit.has_e4m3}
            own |= {"PAD_DIM": shape.pad_dim, "USE_DOT": self._unit.has_dot}
            return attend_floats, (pages,), own
        layout, held = page.quantized, (pages, pages.view(torch.float16))
        own = {"CODE_BITS": page.code_bits}
        if shape.halves:
            return attend_groups, held, own | {"ASSEMBLY": self._device.type == "cuda"}
        own |= {"GROUP_SIZE": layout.group_size, "ROW_ELEMENTS": layout.row_elements}
        own |= {"PAD_DIM": shape.pad_dim, "USE_DOT": self._unit.has_dot}
        return attend_codes, held, own

    def _merge(self, parts: AttentionOutput, result: AttentionOutput) -> None:
        splits, tokens, heads, head_dim = parts.out.shape
        launch = cast("Any", merge_splits)
        launch[(tokens * heads,)](
            parts.out,
            parts.lse,
            result.out,
            result.lse,
            tokens * heads,
            splits,
            HEAD_DIM=head_dim,
            PAD_DIM=power_of_two(head_dim),
            PAD_SPLITS=MAX_SPLITS,
        )

    def merge(
        self, here: AttentionOutput, there: AttentionOutput, places: Tensor, dtype: torch.dtype
    ) -> Tensor:
        """See `MergingKernels`."""
        tokens, (heads, head_dim) = places.shape[1], here.out.shape[1:]
        merged = torch.empty(tokens, heads, head_dim, dtype=dtype, device=places.device)
        launch = cast("Any", merge_tiers)
        launch[(tokens, heads)](
            places,
            here.out,
            here.lse,
            there.out,
            there.lse,
            merged,
            tokens,
            HEADS=heads,
            HEAD_DIM=head_dim,
            PAD_DIM=power_of_two(head_dim),
            num_warps=1,
        )
        return merged

    def plan_append(self, slots: Tensor) -> Tensor:
        """The slots themselves."""
        return slots

    def append(self, pages: Tensor, k: Tensor, v: Tensor, planned: Tensor) -> None:
        """Rounded to the pages' element type, or quantized; one launch."""
        page = self._shape
        k, v = with_whole_tokens(k), with_whole_tokens(v)
        if page.code_bits:
            layout = page.quantized
            launch = cast("Any", append_codes)
            launch[(len(planned), 2 * page.kv_heads, layout.groups)](
                k,
                v,
                planned,
                pages,
                pages.view(torch.float16),
                k.stride(0),
                v.stride(0),
                BLOCK_SIZE=page.block_size,
                KV_HEADS=page.kv_heads,
                HEAD_DIM=page.head_dim,
                CODE_BITS=page.code_bits,
                GROUP_SIZE=layout.group_size,
                ROW_ELEMENTS=layout.row_elements,
                num_warps=1,
            )
            return
        launch = cast("Any", append_floats)
        launch[(len(planned), 2)](
            k,
            v,
            planned,
            pages,
            k.stride(0),
            v.stride(0),
            BLOCK_SIZE=page.block_size,
            KV_HEADS=page.kv_heads,
            HEAD_DIM=page.head_dim,
            PAD_ROW=power_of_two(page.kv_heads * page.head_dim),
        )

    def copy_blocks(
        self, src_pages: Tensor, src_ids: Tensor, dst_pages: Tensor, dst_ids: Tensor
    ) -> None:
        """Torch's indexed copies."""
        copy_blocks(src_pages, src_ids, dst_pages, dst_ids)
