"""Decode attention of one layer of Llama-3.1-8B beside a read probe and torch, in one run.

    PYTHONPATH=src python native/bench/attention.py [--threads 2] [--rounds 15] [--dtype ...]

Per workload, element type and variant: median of achieved bytes/s as a fraction of the read probe's
(best quarter of its rounds), its spread over rounds, and the absolute rate. Rounds interleave
all variants and rotate over pages that together exceed what a core's caches keep.
"""

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch
from torch import Tensor

from tandem.kernels import native
from tandem.kernels.native_attention import NativeBatch, paged_attention
from tandem.kernels.native_pool import NativePool
from tandem.kernels.pages import PageShape
from tandem.plan.binding import TierAttention

SHAPE = PageShape(kv_heads=8, block_size=64, head_dim=128)
HEADS = 32
SCALE = SHAPE.head_dim**-0.5
POOL_BYTES = 1 << 30  # pages of one element type, which the calls rotate over


@dataclass(frozen=True)
class Workload:
    """Context length of every request."""

    name: str
    lengths: list[int]


def workloads() -> list[Workload]:
    """The cases A and B of the performance targets."""
    random = np.random.default_rng(0)
    return [
        Workload("A 16 x 1024-2048", [int(n) for n in random.integers(1024, 2049, 16)]),
        Workload("B 64 x 512", [512] * 64),
    ]


@dataclass(frozen=True)
class Layer:
    """One rotation's pages, queries and plan."""

    batch: NativeBatch
    q: Tensor
    rows: list[tuple[Tensor, Tensor]]  # contiguous K, V [1, kv_heads, tokens, head_dim] per request


def make_layers(load: Workload, pages: Tensor, pool: NativePool, limit: int) -> list[Layer]:
    """Disjoint sets of shuffled blocks, as many as the pages hold."""
    counts = [-(-n // SHAPE.block_size) for n in load.lengths]
    total = sum(counts)
    ids = np.random.default_rng(1).permutation(len(pages))
    layers: list[Layer] = []
    for begin in range(0, min(len(pages) // total, limit) * total, total):
        table = np.zeros((len(counts), max(counts)), np.int32)
        at = begin
        for row, count in enumerate(counts):
            table[row, :count] = ids[at : at + count]
            at += count
        attention = TierAttention(
            token_index=None,
            query_start=np.arange(len(counts) + 1, dtype=np.int32),
            num_decode=len(counts),
            positions=np.array(load.lengths, np.int32) - 1,
            block_table=table,
            block_index=None,
        )
        batch = NativeBatch.from_binding(attention, SHAPE, HEADS, pool.num_threads)
        q = torch.randn(len(counts), HEADS, SHAPE.head_dim).to(pages.dtype)
        layers.append(Layer(batch, q, contiguous_rows(load, pages, begin)))
    return layers


def contiguous_rows(load: Workload, pages: Tensor, first: int) -> list[tuple[Tensor, Tensor]]:
    """Torch's own layout over the same memory: its values do not matter for its time."""
    flat = pages.view(-1)[first * SHAPE.numel :]
    rows: list[tuple[Tensor, Tensor]] = []
    at = 0
    for length in load.lengths:
        size = SHAPE.kv_heads * length * SHAPE.head_dim
        shape = (1, SHAPE.kv_heads, length, SHAPE.head_dim)
        k, v = (flat[at + i * size : at + (i + 1) * size].view(shape) for i in range(2))
        rows.append((k, v))
        at += 2 * size
    return rows


def torch_best(layer: Layer) -> None:
    """SDPA per request, the query group folded into rows."""
    group = HEADS // SHAPE.kv_heads
    for q, (k, v) in zip(layer.q, layer.rows, strict=True):
        folded = q.view(1, SHAPE.kv_heads, group, SHAPE.head_dim)
        torch.nn.functional.scaled_dot_product_attention(folded, k, v, scale=SCALE)


def measure(variants: dict[str, Callable[[int], float]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each variant in each round, variants interleaved."""
    for run in variants.values():
        run(0)
    times: dict[str, list[float]] = {name: [] for name in variants}
    for i in range(rounds):
        for name, run in variants.items():
            times[name].append(run(i))
    return times


def timed(function: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def bench(load: Workload, dtype: torch.dtype, args: argparse.Namespace) -> None:
    """Measure one workload in one element type and print its rows."""
    width = torch.finfo(dtype).bits // 8
    pages = torch.empty(POOL_BYTES // (SHAPE.numel * width), 2, 8, 64, 128, dtype=dtype)
    pages.view(-1)[:] = torch.randn(1 << 20).to(dtype).repeat(pages.numel() >> 20)
    pools = {isa: NativePool(args.threads, isa=isa) for isa in native.supported_isas()}
    layers = make_layers(load, pages, pools[native.choose_isa()], args.rounds)
    data = layers[0].batch.read_bytes(width)
    chunks = pages.view(-1).split(data // width)
    probe = pools[native.choose_isa()]
    variants: dict[str, Callable[[int], float]] = {
        "read probe": lambda i: probe.read_seconds(chunks[i % (len(chunks) - 1)])
    }

    def add(isa: str, pool: NativePool) -> None:
        def run(i: int) -> float:
            layer = layers[i % len(layers)]
            return timed(lambda: paged_attention(pool, layer.q, pages, layer.batch, SCALE))

        variants[isa] = run

    for isa, pool in reversed(pools.items()):
        if isa != "portable" or args.portable:
            add(isa, pool)
    variants["torch"] = lambda i: timed(lambda: torch_best(layers[i % len(layers)]))
    times = measure(variants, args.rounds)
    for name, seconds in times.items():
        ratios = [p / s for p, s in zip(times["read probe"], seconds, strict=True)]
        low, high = np.percentile(ratios, [25, 75])
        print(
            f"{load.name:18} {str(dtype)[6:]:9} {name:11} fraction {median(ratios):5.2f}"
            f" [{low:.2f}, {high:.2f}]  best {min(times['read probe']) / min(seconds):.2f}"
            f"  {data / median(seconds) / 1e9:6.2f} GB/s"
        )


def main() -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--threads", type=int, default=0, help="0: all that the process may use")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--dtype", nargs="*", default=["float16", "bfloat16", "float32"])
    parser.add_argument("--portable", action="store_true", help="the portable kernels, too")
    args = parser.parse_args()
    threads = args.threads or NativePool().num_threads
    torch.set_num_threads(threads)
    print(f"{threads} threads, affinity {sorted(os.sched_getaffinity(0))}")
    for load in workloads():
        for name in args.dtype:
            bench(load, getattr(torch, name), args)


if __name__ == "__main__":
    main()
