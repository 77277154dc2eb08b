"""Prefill attention on the CPU beside torch's best on its own layout, and the rate of products."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from tandem.bench.prefill_cases import Prompt, best_form, make_case, tandem, torch_forms
from tandem.bench.records import BenchRow, row_of_samples
from tandem.kernels import native
from tandem.kernels.native_pool import NativePool, usable_threads
from tandem.probes.interleave import interleave
from tandem.probes.kernel_cases import HeadShape
from tandem.probes.timing import timed

SUITE = "prefill"
MAIN_SHAPE = HeadShape(32, 8, 128)
SHAPES = (MAIN_SHAPE, HeadShape(32, 32, 128), HeadShape(16, 4, 64))
PROMPTS = (Prompt(512), Prompt(2048), Prompt(8192), Prompt(512, 4096))
SLOWEST = 1.3  # times torch's best, at most
_PROBE_SIZE = 1024
_LONG_FLOPS = 1e11  # from here on, three rounds
_GIGA = 1e9


@dataclass(frozen=True, slots=True)
class PrefillBench:
    """What to measure.

    Attributes:
        dtypes: of the main shape; other shapes are measured in the first only.
        threads: of the main shape; other shapes are measured with the most only.
        rounds: samples of each variant, three for long prompts.
    """

    shapes: tuple[HeadShape, ...]
    prompts: tuple[Prompt, ...]
    dtypes: tuple[torch.dtype, ...]
    threads: tuple[int, ...]
    rounds: int


def full() -> PrefillBench:
    """All that the targets are about; some minutes."""
    threads = tuple(sorted({1, usable_threads()}))
    dtypes = (torch.bfloat16, torch.float16, torch.float32)
    return PrefillBench(SHAPES, PROMPTS, dtypes, threads, rounds=7)


def quick() -> PrefillBench:
    """Under a minute: the main shape in bfloat16, without the longest prompt."""
    prompts = (Prompt(512), Prompt(2048), Prompt(512, 4096))
    return PrefillBench((MAIN_SHAPE,), prompts, (torch.bfloat16,), (usable_threads(),), rounds=5)


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination."""

    shape: HeadShape
    prompt: Prompt
    dtype: torch.dtype
    threads: int

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"prefill {self.prompt}, {self.shape} {dtype} {self.threads} threads"


def cells(config: PrefillBench) -> list[Cell]:
    """Every combination that is measured."""
    return [
        Cell(shape, prompt, dtype, threads)
        for shape in config.shapes
        for dtype in (config.dtypes if shape == MAIN_SHAPE else config.dtypes[:1])
        for threads in (config.threads if shape == MAIN_SHAPE else (max(config.threads),))
        for prompt in config.prompts
    ]


def run_prefill(config: PrefillBench, report: Callable[[str], None]) -> list[BenchRow]:
    """Measure every cell; `report` is told of each before it begins.

    Raises:
        ConfigError: the compiled kernels are not there, or TANDEM_CPU_ISA cannot be followed.
    """
    native.choose_isa()
    rows: list[BenchRow] = []
    before = torch.get_num_threads()
    try:
        for cell in cells(config):
            report(str(cell))
            torch.set_num_threads(cell.threads)
            with torch.inference_mode():
                rows += _cell_rows(cell, config.rounds)
    finally:
        torch.set_num_threads(before)
    return rows


def _cell_rows(cell: Cell, rounds: int) -> list[BenchRow]:
    pool = NativePool(cell.threads)
    case = make_case(cell.shape, cell.prompt, cell.dtype)
    flops = cell.prompt.flops(cell.shape)
    ours, theirs = tandem(case, pool), best_form(torch_forms(case))
    a, b = torch.randn(2, _PROBE_SIZE, _PROBE_SIZE)
    name, peer, probe = f"tandem {pool.isa}", f"torch {theirs[0]}", "torch product"
    rates = interleave(
        {
            name: lambda: flops / timed(ours) / _GIGA,
            peer: lambda: flops / timed(theirs[1]) / _GIGA,
            probe: lambda: 2 * _PROBE_SIZE**3 / timed(lambda: a @ b) / _GIGA,
        },
        3 if flops > _LONG_FLOPS else rounds,
    )
    limit = max(rates[probe])
    rows = [
        row_of_samples(str(cell), variant, "rate", rates[variant], "GFLOP/s", limit)
        for variant in (name, peer)
    ]
    rows.append(row_of_samples(str(cell), probe, "rate", rates[probe], "GFLOP/s"))
    slower = [b / a for a, b in zip(rates[name], rates[peer], strict=True)]
    rows.append(row_of_samples(str(cell), name, "time over torch best", slower, "ratio", SLOWEST))
    return rows
