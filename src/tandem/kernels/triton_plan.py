"""Decides once per step, on the host, how the Triton kernels cut a tier's attention."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from tandem.kernels.tiles import USUAL_TILES, TileSettings
from tandem.kernels.triton_support import TritonDevice
from tandem.kernels.upload import upload
from tandem.plan.binding import IntArray, LongArray, TierAttention
from tandem.plan.seen_keys import count_seen_keys

MIN_DOT = 16  # rows, columns and depth of the smallest product on matrix units
_WIDE_PREFILL_ROWS, _WIDE_PREFILL_ROWS_OVER_CODES = 32, 16
"""Of queries of 32 bits, which are for checking: as large as registers take (ADR 0029), and what
multiplies codes by them needs twice the registers again."""
MAX_SPLITS = 64
_LEAST_KEY_BYTES = 256  # a shorter key does not make a tile of more
DECODE_SPLIT_KEYS = 256  # a split with fewer costs more to merge than it spreads
_LEAST_DIM_OF_MORE_WARPS = 128  # of codes; below, tiles fit the usual warps' registers
_PRODUCT_ELEMENTS = 8192  # held in registers where there are no matrix units
_ALIGNED = 4  # elements of an int32 array
_FEW_ROWS = MIN_DOT
_ELEMENTS_OF_TWO_GROUPS = 128
_AT_ONCE = 4
"""Programs of a decode that a multiprocessor runs at once (ADR 0100): one more than fit everywhere
waits for all of the others."""


@dataclass(frozen=True, slots=True)
class HeadShape:
    """What queries and keys of a model look like.

    Attributes:
        group: query heads per KV head.
        row_elements: those of a row of keys in memory: head_dim, or more in quantized pages.
        element_bytes: of a query's elements, in which products are taken.
        code_bits: of keys and values in quantized pages; 0: they are floats.
    """

    kv_heads: int
    group: int
    row_elements: int
    element_bytes: int
    code_bits: int = 0


@dataclass(frozen=True, slots=True)
class TileShape:
    """What a kernel is compiled with: see the kernels, and `TileSettings`.

    Attributes:
        halves: products are in float16, which has what pages hold exactly, by queries that fit.
    """

    tokens: int
    rows: int
    keys: int
    pad_dim: int
    stages: int
    warps: int
    halves: bool = False


@dataclass(frozen=True, slots=True)
class Tiles:
    """Consecutive query tokens, one tile per program: int32 [tiles] each.

    Attributes:
        tokens: those of the batch that the tiles cover: a prefix, or the rest.
        splits: programs among which the keys of each tile are divided.
    """

    row: Tensor
    token: Tensor
    count: Tensor
    tokens: slice
    shape: TileShape
    splits: int


@dataclass(frozen=True, slots=True)
class TritonBatch:
    """One tier's part of a lane's attention on a device; built once per step.

    Attributes:
        first, end: int32 [tokens]; the range of its row's keys that each token sees.
        table: int32 [rows, blocks].
    """

    num_tokens: int
    first: Tensor
    end: Tensor
    table: Tensor
    tiles: tuple[Tiles, ...]


def plan_tiles(
    attention: TierAttention,
    block_size: int,
    heads: HeadShape,
    unit: TritonDevice,
    device: torch.device,
    window: int = 0,
) -> TritonBatch:
    """Rows of one query token, each a tile whose keys are split; the others' tokens in tiles.

    All of it crosses to the device as one array.
    """
    seen = count_seen_keys(attention, block_size, window)
    num_tokens, num_decode = len(seen.end), attention.num_decode
    longest = int(seen.count[:num_decode].max(initial=0))
    cuts: list[tuple[slice, TileShape, int, tuple[IntArray, ...]]] = []
    if num_decode:
        shape = decode_shape(heads, unit)
        splits = _count_splits(num_decode * heads.kv_heads, longest + shape.keys, unit)
        cuts.append((slice(0, num_decode), shape, splits, _cut(attention, 0, num_decode, 1)))
    if num_decode < len(attention.block_table):
        shape = prefill_shape(heads, unit.tiles)
        rows = len(attention.block_table)
        cut = _longest_first(_cut(attention, num_decode, rows, shape.tokens), seen.end)
        cuts.append((slice(num_decode, num_tokens), shape, 1, cut))
    arrays = [seen.first, seen.end, attention.block_table.reshape(-1)]
    for *_, cut in cuts:
        arrays += cut
    parts = iter(_upload_together(arrays, device))
    first, end, table = next(parts), next(parts), next(parts)
    tiles = tuple(
        Tiles(
            row=next(parts),
            token=next(parts),
            count=next(parts),
            tokens=tokens,
            shape=shape,
            splits=splits,
        )
        for tokens, shape, splits, _ in cuts
    )
    return TritonBatch(num_tokens, first, end, table.view(attention.block_table.shape), tiles)


def plan_rows(
    position: Tensor,  # int64 [rows]; of each row's query
    table: Tensor,  # int32 [rows, blocks]
    block_size: int,
    heads: HeadShape,
    unit: TritonDevice,
    window: int = 0,
) -> TritonBatch:
    """`plan_tiles` of rows that decode, from numbers on the device, as for the longest rows that
    the table has room for: splits without keys end at once.
    """
    rows, blocks = table.shape
    end = (position + 1).to(torch.int32)
    first = (end - window).clamp_(min=0) if window else torch.zeros_like(end)
    row = torch.arange(rows, dtype=torch.int32, device=table.device)
    shape = decode_shape(heads, unit)
    splits = _count_splits(rows * heads.kv_heads, blocks * block_size + shape.keys, unit)
    tiles = Tiles(row, row, torch.ones_like(row), slice(0, rows), shape, splits)
    return TritonBatch(rows, first, end, table, (tiles,))


def decode_shape(heads: HeadShape, unit: TritonDevice) -> TileShape:
    """One token; on matrix units its heads are padded to their smallest product."""
    rows, pad_dim = power_of_two(heads.group), power_of_two(heads.row_elements)
    tiles = unit.tiles
    stages, warps = tiles.decode_stages, tiles.decode_warps
    if not unit.has_dot:
        keys = min(64, max(1, _PRODUCT_ELEMENTS // (rows * pad_dim)))
        return TileShape(1, rows, keys, pad_dim, stages, warps)
    rows, pad_dim = max(MIN_DOT, rows), max(MIN_DOT, pad_dim)
    is_large = heads.element_bytes > 2
    keys, warps = _dot_size(pad_dim, heads, tiles.decode_key_bytes, warps, is_large=is_large)
    if _multiplies_codes(heads, rows):
        # shorter steps, of which more are under way, in programs of half the registers
        keys, warps = max(MIN_DOT, keys // 2), max(1, warps // 2)
        return TileShape(1, rows, keys, pad_dim, 2 * stages, warps, halves=True)
    return TileShape(1, rows, keys, pad_dim, stages, warps)


def prefill_shape(heads: HeadShape, tiles: TileSettings = USUAL_TILES) -> TileShape:
    """As many tokens as make `prefill_rows` rows; on matrix units only."""
    pad_dim = max(MIN_DOT, power_of_two(heads.row_elements))
    is_wide, most = heads.element_bytes > 2, tiles.prefill_rows
    if is_wide:
        most = _WIDE_PREFILL_ROWS_OVER_CODES if heads.code_bits else _WIDE_PREFILL_ROWS
    tokens = max(1, most // heads.group)
    rows = max(MIN_DOT, power_of_two(tokens * heads.group))
    unpacks = heads.code_bits == 4 and pad_dim >= _LEAST_DIM_OF_MORE_WARPS
    keys, warps = _dot_size(
        pad_dim, heads, tiles.prefill_key_bytes, tiles.prefill_warps, is_large=unpacks or is_wide
    )
    return TileShape(tokens, rows, keys, pad_dim, tiles.prefill_stages, warps)


def _multiplies_codes(heads: HeadShape, rows: int) -> bool:
    """Whether decode takes codes as they are: see `triton_group_attention`, which is for rows of
    two groups, and whose registers hold few queries.
    """
    is_two_groups = heads.row_elements == _ELEMENTS_OF_TWO_GROUPS
    return (
        is_two_groups and bool(heads.code_bits) and heads.element_bytes == 2 and rows <= _FEW_ROWS
    )


def shape_over_bytes(shape: TileShape, heads: HeadShape, unit: TritonDevice) -> TileShape:
    """The same over pages of e4m3, of which float16 has every value.

    Of few rows, whose keys are most of what a program holds, twice as many steps are under way, as
    many bytes as of 16 bits, in half the warps: each thread has as many of them.
    """
    if not unit.has_dot or heads.element_bytes > 2:
        return shape
    if shape.rows > _FEW_ROWS:
        return replace(shape, halves=True)
    return replace(shape, halves=True, stages=2 * shape.stages, warps=max(1, shape.warps // 2))


def _dot_size(
    pad_dim: int, heads: HeadShape, key_bytes: int, warps: int, *, is_large: bool
) -> tuple[int, int]:
    """Keys of a tile, and warps.

    Args:
        is_large: the usual warps' registers do not hold it: half the keys, and twice the warps,
            each thread of which then needs fewer.
    """
    size, warps = (key_bytes // 2, 2 * warps) if is_large else (key_bytes, warps)
    most = key_bytes // _LEAST_KEY_BYTES
    return max(MIN_DOT, min(most, size // (pad_dim * heads.element_bytes))), warps


def _count_splits(programs: int, keys: int, unit: TritonDevice) -> int:
    """As many as run at once, none of them short."""
    wanted = _AT_ONCE * unit.processors // programs
    return max(1, min(wanted, keys // DECODE_SPLIT_KEYS, MAX_SPLITS))


def _cut(attention: TierAttention, first: int, last: int, tokens: int) -> tuple[IntArray, ...]:
    """Tiles of rows `first` to `last`: their rows, first tokens and numbers of tokens."""
    starts = attention.query_start
    found: list[tuple[int, int, int]] = []
    for row in range(first, last):
        begin, end = int(starts[row]), int(starts[row + 1])
        found += [(row, at, min(tokens, end - at)) for at in range(begin, end, tokens)]
    columns = np.array(found, dtype=np.int32).reshape(-1, 3).T
    return columns[0], columns[1], columns[2]


def _longest_first(cut: tuple[IntArray, ...], end: LongArray) -> tuple[IntArray, ...]:
    """Tiles by the keys that they see: one that begins last, and is long, would end alone."""
    _, token, count = cut
    order = np.argsort(-end[token + count - 1], kind="stable")
    return tuple(column[order] for column in cut)


def _upload_together(arrays: "list[IntArray]", device: torch.device) -> tuple[Tensor, ...]:
    """Each begins where Triton takes it to be aligned (16 bytes): by whether a pointer is, it
    compiles a kernel of its own, which in the middle of serving takes a second or more.
    """
    starts = np.cumsum([0, *(-(-len(array) // _ALIGNED) * _ALIGNED for array in arrays)])
    joined = np.zeros(starts[-1], dtype=np.int32)
    for start, array in zip(starts, arrays, strict=False):
        np.copyto(joined[start : start + len(array)], array, casting="same_kind")
    moved = upload(joined, device)
    return tuple(
        moved[start : start + len(array)] for start, array in zip(starts, arrays, strict=False)
    )


def power_of_two(count: int) -> int:
    """The least power of two that is at least `count`."""
    return 1 << (count - 1).bit_length()
