"""Workloads and shapes of the kernel benchmark, and batches over pages that exceed the caches."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tandem.kernels.pages import PageShape
from tandem.plan.binding import TierAttention
from tandem.spec.kv_type import KVType

BLOCK_SIZE = 64
_POOL_BYTES = 512 << 20  # pages that calls rotate over, at least
_SOFTMAX_FLOPS = 5
_LOOP_HEADS = 4
_LOOP_KEYS = 16384  # of a row
_LOOP_ROWS = 8  # per thread: a plan cuts as many parts


@dataclass(frozen=True, slots=True)
class HeadShape:
    """Query heads, KV heads and head size of a model's attention."""

    heads: int
    kv_heads: int
    head_dim: int

    def __str__(self) -> str:
        return f"{self.heads}/{self.kv_heads}/{self.head_dim}"

    @property
    def pages(self) -> PageShape:
        """One layer's pages."""
        return PageShape(self.kv_heads, BLOCK_SIZE, self.head_dim)

    @property
    def key_elements(self) -> int:
        """Of one token's keys and values."""
        return 2 * self.kv_heads * self.head_dim

    @property
    def pair_flops(self) -> int:
        """Of a query token and a key that it sees: scores, softmax and sum, as `spec/` counts."""
        return self.heads * (4 * self.head_dim + _SOFTMAX_FLOPS)

    @property
    def scale(self) -> float:
        """Of scores."""
        return self.head_dim**-0.5


@dataclass(frozen=True, slots=True)
class PageProbe:
    """Attention's shape, and the pages that it is measured over.

    Attributes:
        kv: what they hold.
        memory_bytes: that calls walk through, so that caches do not help; an accelerator's no more
            than its caches ask for, unless one call needs more.
    """

    heads: HeadShape
    kv: KVType
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Workload:
    """Context length of every request of a decode batch."""

    name: str
    lengths: tuple[int, ...]

    @property
    def num_blocks(self) -> int:
        """Pages that one layer of it fills."""
        return sum(-(-n // BLOCK_SIZE) for n in self.lengths)


def workloads() -> tuple[Workload, ...]:
    """A: medium lengths, B: short and equal, C: one very long request beside short ones."""
    random = np.random.default_rng(0)
    return (
        Workload("A", tuple(int(n) for n in random.integers(1024, 2049, 16))),
        Workload("B", (512,) * 64),
        Workload("C", (131072, *(256,) * 63)),
    )


def count_pages(load: Workload, page_bytes: int) -> int:
    """Pages that exceed the caches, at least one layer's."""
    return max(_POOL_BYTES // page_bytes, load.num_blocks)


@dataclass(frozen=True, slots=True)
class LayerCase:
    """One layer's decode step: which pages, and queries `[requests, heads, head_dim]`."""

    attention: TierAttention
    query: Tensor


def make_layers(
    shape: HeadShape,
    load: Workload,
    num_pages: int,
    dtype: torch.dtype = torch.float16,
    *,
    most: int | None = None,
    first: int = 0,
) -> list[LayerCase]:
    """Layers over disjoint sets of shuffled pages, as many as there are pages for.

    Args:
        dtype: of queries.
        most: layers, where calls ask for no more.
        first: of the shuffled pages, in turns: where other layers ended.
    """
    ids = np.random.default_rng(1).permutation(num_pages).astype(np.int32)
    ids = np.roll(ids, -first)
    count = num_pages // load.num_blocks
    count = count if most is None else min(count, most)
    return [
        _layer(shape, load, ids[i * load.num_blocks : (i + 1) * load.num_blocks], dtype)
        for i in range(count)
    ]


def _layer(shape: HeadShape, load: Workload, ids: np.ndarray, dtype: torch.dtype) -> LayerCase:
    blocks = [-(-n // BLOCK_SIZE) for n in load.lengths]
    table = np.zeros((len(blocks), max(blocks)), np.int32)
    at = 0
    for row, count in enumerate(blocks):
        table[row, :count] = ids[at : at + count]
        at += count
    attention = decode_rows(np.array(load.lengths, np.int32), table)
    query = torch.randn(len(blocks), shape.heads, shape.head_dim).to(dtype)
    return LayerCase(attention, query)


def decode_rows(lengths: np.ndarray, table: np.ndarray) -> TierAttention:
    """One query token per row, after all of its keys."""
    return TierAttention(
        token_index=None,
        query_start=np.arange(len(lengths) + 1, dtype=np.int32),
        num_decode=len(lengths),
        positions=(lengths - 1).astype(np.int32),
        block_table=table,
        block_index=None,
    )


def dense_rows(
    shape: HeadShape, load: Workload, pages: Tensor, layer: int
) -> tuple[tuple[Tensor, Tensor], ...]:
    """Torch's own layout over a layer's memory: each request's K and V
    `[kv_heads, tokens, head_dim]`, contiguous.
    """
    flat = pages.view(-1)[layer * load.num_blocks * shape.pages.numel :]
    rows: list[tuple[Tensor, Tensor]] = []
    at = 0
    for length in load.lengths:
        size = shape.kv_heads * length * shape.head_dim
        k, v = (
            flat[at + i * size : at + (i + 1) * size].view(shape.kv_heads, length, shape.head_dim)
            for i in range(2)
        )
        rows.append((k, v))
        at += 2 * size
    return tuple(rows)


def loop_case(shape: HeadShape, num_threads: int) -> tuple[HeadShape, TierAttention]:
    """The kernel's inner loops on data that stays in a core's caches, ten milliseconds or more.

    As many rows as the plan cuts parts, each of one page listed over and over, so that a part has
    a page of its own: no two threads share one, and nothing is merged. A page holds a few KV heads
    with their whole query groups. One head alone would fit the first-level cache, and yet be
    slower: each tile would wait for the one before.
    """
    kv_heads = min(_LOOP_HEADS, shape.kv_heads)
    few = HeadShape(shape.heads // shape.kv_heads * kv_heads, kv_heads, shape.head_dim)
    rows = _LOOP_ROWS * num_threads
    table = np.arange(rows, dtype=np.int32)[:, None].repeat(_LOOP_KEYS // BLOCK_SIZE, axis=1)
    return few, decode_rows(np.full(rows, _LOOP_KEYS), table)
