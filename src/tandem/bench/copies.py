"""Copies of KV blocks between pools in host memory, beside torch and the rates of memory."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from tandem.bench.records import BenchRow, row_of_samples
from tandem.devices.host_memory import bulk_zeros
from tandem.kernels import native
from tandem.kernels.native_pages import copy_now
from tandem.kernels.native_pool import NativePool, usable_threads
from tandem.kernels.pages import copy_blocks
from tandem.probes.interleave import interleave
from tandem.probes.kernel_cases import BLOCK_SIZE, HeadShape
from tandem.probes.timing import timed

SUITE = "copies"
_SHAPE = HeadShape(32, 8, 128)
_GIGA = 1e9


@dataclass(frozen=True, slots=True)
class CopyBench:
    """What to measure: `copied` blocks of each of `layers`, in pools of half as many again."""

    layers: int
    copied: int
    threads: tuple[int, ...]
    rounds: int


def full() -> CopyBench:
    """Half a gigabyte at a time."""
    return CopyBench(layers=16, copied=128, threads=tuple(sorted({1, usable_threads()})), rounds=9)


def quick() -> CopyBench:
    """A few seconds."""
    return CopyBench(layers=8, copied=64, threads=(usable_threads(),), rounds=5)


def run_copies(config: CopyBench, report: Callable[[str], None]) -> list[BenchRow]:
    """Measure shuffled and adjacent blocks; `report` is told of each case before it begins.

    Raises:
        ConfigError: the compiled kernels are not there, or TANDEM_CPU_ISA cannot be followed.
    """
    native.choose_isa()
    rows: list[BenchRow] = []
    before = torch.get_num_threads()
    try:
        for threads in config.threads:
            torch.set_num_threads(threads)
            for adjacent in (False, True):
                case = f"{'adjacent' if adjacent else 'shuffled'} blocks, {threads} threads"
                report(case)
                rows += _case_rows(config, case, NativePool(threads), adjacent=adjacent)
    finally:
        torch.set_num_threads(before)
    return rows


def _case_rows(config: CopyBench, case: str, pool: NativePool, *, adjacent: bool) -> list[BenchRow]:
    blocks = config.copied * 3 // 2
    shape = (config.layers, blocks, 2, _SHAPE.kv_heads, BLOCK_SIZE, _SHAPE.head_dim)
    source = bulk_zeros(shape, torch.float16).fill_(1)
    target = bulk_zeros(shape, torch.float16)
    order = torch.arange(blocks) if adjacent else torch.randperm(blocks)
    ids, others = order[: config.copied], order.flip(0)[: config.copied].sort().values
    others = others if adjacent else others[torch.randperm(config.copied)]
    size = config.layers * config.copied * source[0, 0].nbytes
    flat = [t.view(-1)[: size // t.element_size()] for t in (source, target)]

    def rate(copy: Callable[[], object]) -> Callable[[], float]:
        return lambda: size / timed(copy) / _GIGA

    samples = interleave(
        {
            "tandem": rate(lambda: copy_now(pool, source, ids, target, others)),
            "torch index": rate(lambda: copy_blocks(source, ids, target, others)),
            "torch contiguous": rate(lambda: flat[1].copy_(flat[0])),
            "read probe": lambda: size / pool.read_seconds(flat[0]) / _GIGA,
        },
        config.rounds,
    )
    limit = max(samples["read probe"])
    return [
        row_of_samples(case, name, "bytes copied", values, "GB/s", limit)
        for name, values in samples.items()
    ]
