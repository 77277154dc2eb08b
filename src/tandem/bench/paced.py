"""`tandem bench paced`: what hybrid strategies gain on an emulated accelerator with a real CPU.

Decode only, in a steady state. The accelerator's and the link's times are emulated, the host's
attention and the scheduler are real; all figures carry the word `paced`. The gain is held against
`x = B_c T_sweep / KV_gpu`: sequences whose attention the host could serve within the accelerator's
own sweep, per sequence on the accelerator (equal mean contexts, same precision).
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch

from tandem.bench.host_probe import HostRates, probe_host
from tandem.bench.paced_cell import CellResult, Load, PacedCell, device_capacity, run_cell
from tandem.bench.records import BenchRow
from tandem.cost.apex.overlap import attainable_gain
from tandem.cost.pair_ratios import Cell, Ratio, compare_cells
from tandem.devices.cpu_cache import last_level_cache_bytes
from tandem.memory.peaks import read_host_memory
from tandem.runtime.paced.host import plan_aliasing
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.hardware_file import load_hardware
from tandem.spec.model import ModelSpec, RopeSpec

SUITE = "paced"
BASELINE = "gpu-only"
_MEMORY_SHARE = 0.5
_COHORT_SWEEPS = 2
_COHORT_FILL = 0.85
_RIDE_FILL = 0.9

LLAMA_8B = ModelSpec(
    architecture="llama",
    vocab_size=128_256,
    hidden_size=4096,
    num_layers=32,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    intermediate_size=14_336,
    max_positions=131_072,
    rope=RopeSpec(theta=500_000.0, kind="llama3", factor=8.0),
)


@dataclass(frozen=True, slots=True)
class PacedBench:
    """What to run.

    Attributes:
        hardware: name or path of a description; `layers` of Llama-3.1-8B's 32, the output head cut
            alike, are run on it.
        window_s: least time measured per strategy.
    """

    hardware: str = "small"
    layers: int = 8
    context: int = 1200
    dtype: DType = DType.BFLOAT16
    window_s: float = 2.0


@dataclass(frozen=True, slots=True)
class PacedOutcome:
    """All that was measured.

    Attributes:
        gain_bound: x, the most that host attention can add to the accelerator's tokens per second.
        ratios: of the real pair beside the scaled one; empty if the description is not scaled.
    """

    cell: PacedCell
    rates: HostRates
    gain_bound: float
    results: tuple[CellResult, ...]
    ratios: tuple[Ratio, ...]

    @property
    def baseline(self) -> CellResult:
        """The accelerator alone."""
        return self.results[0]


def run_paced(bench: PacedBench, report: Callable[[str], None]) -> PacedOutcome:
    """GPU-only first, since cohorts are sized on its sweep; then the hybrid strategies.

    Args:
        report: told in words what is being done.

    Raises:
        ConfigError: the machine has a single core, or the model does not fit the description.
    """
    with own_core() as cores:
        cell = _make_cell(bench, cores)
        rows = device_capacity(cell)
        if rows == 0:
            raise ConfigError(
                f"{cell.hardware.name} has no room for a sequence of {bench.context} tokens; lower "
                "--layers or --context"
            )
        report(f"gpu-only: {rows} sequences on the accelerator")
        alone = run_cell(cell, BASELINE, Load(rows), bench.window_s)
        report("probing the host's memory bandwidth and attention")
        rates = _probe(cell, rows)
        results = [alone]
        for strategy, load in _loads(cell, alone, rates):
            report(f"{strategy}: {load.host_rows} more sequences on the host")
            results.append(run_cell(cell, strategy, load, bench.window_s))
    held = rows * cell.row_layer_bytes * cell.model.num_layers
    bound = attainable_gain(rates.read_bytes_per_s, alone.period_s, held)
    return PacedOutcome(cell, rates, bound, tuple(results), _ratios(cell, bench))


def _make_cell(bench: PacedBench, cores: tuple[int, ...]) -> PacedCell:
    share = bench.layers / LLAMA_8B.num_layers
    model = replace(LLAMA_8B, num_layers=bench.layers, vocab_size=int(LLAMA_8B.vocab_size * share))
    return PacedCell(load_hardware(bench.hardware), model, bench.dtype, bench.context, cores)


@contextmanager
def own_core() -> Iterator[tuple[int, ...]]:
    """Keep this thread on the first core; yields the others, for attention."""
    before = os.sched_getaffinity(0)
    first, *others = sorted(before)
    if not others:
        raise ConfigError("a paced run needs two cores: one to schedule, one to attend")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {first})
    try:
        yield tuple(others)
    finally:
        os.sched_setaffinity(0, before)
        torch.set_num_threads(threads)


def _probe(cell: PacedCell, rows: int) -> HostRates:
    page, limit = cell.page, int(read_host_memory().available_bytes * _MEMORY_SHARE)
    blocks = rows * page.blocks_for_tokens(cell.context)
    cache = cell.cache_bytes or last_level_cache_bytes()
    aliasing = plan_aliasing(page, blocks, cache, limit)
    return probe_host(cell.model, page, aliasing, rows, cell.context, cell.cores)


def _loads(cell: PacedCell, alone: CellResult, rates: HostRates) -> list[tuple[str, Load]]:
    """Host sequences that fit the time they have: the device's attention, or two sweeps."""
    sweep_s, rows = alone.period_s, alone.load.device_rows
    attention_s = rows * cell.row_layer_bytes / _device_bytes_per_s(cell)
    riding = _RIDE_FILL * attention_s * rates.attention_bytes_per_s / cell.row_layer_bytes
    # A join is known only in mid-sweep, when the next sweep is submitted already: a cohort joins
    # every other sweep, and is sized for that.
    time_s = _COHORT_FILL * _COHORT_SWEEPS * sweep_s
    joining = time_s * rates.attention_bytes_per_s / cell.row_layer_bytes
    return [
        ("ride-along", Load(rows, max(1, int(riding)))),
        ("rendezvous", Load(rows, max(1, int(joining)), max_join_wait_s=sweep_s)),
    ]


def _device_bytes_per_s(cell: PacedCell) -> float:
    facts = cell.hardware.accelerator
    return facts.memory_bandwidth_bytes_per_s * facts.memory_efficiency


def _ratios(cell: PacedCell, bench: PacedBench) -> tuple[Ratio, ...]:
    origin = cell.hardware.scaled_from
    if origin is None:
        return ()
    real = Cell(load_hardware(origin), LLAMA_8B, bench.dtype, bench.context)
    scaled = Cell(cell.hardware, cell.model, bench.dtype, bench.context)
    return compare_cells(real, scaled)


def rows_of(outcome: PacedOutcome) -> tuple[BenchRow, ...]:
    """Rows of the common record format, for every strategy."""
    cell, alone = outcome.cell, outcome.baseline
    case = (
        f"{cell.hardware.name}, Llama-3.1-8B cut to {cell.model.num_layers} layers, "
        f"{cell.dtype.value}, decode at {cell.context} tokens"
    )
    rows: list[BenchRow] = []
    for result in outcome.results:
        row = partial(BenchRow, case, f"paced {result.strategy}")
        hybrid = result is not alone
        bound = alone.tokens_per_s * (1 + outcome.gain_bound)
        if not hybrid:
            bound = result.tokens_per_s / max(result.report.accel_busy, 1e-9)
        rows.append(row("decode throughput", result.tokens_per_s, "tokens/s", bound, result.spread))
        if hybrid:
            gain = result.tokens_per_s / alone.tokens_per_s - 1
            rows += [
                row("gain over gpu-only", gain, "ratio - 1", outcome.gain_bound),
                row("time per host token", result.period_s, "s"),
            ]
        report = result.report
        rows += [
            row("run valid", float(report.valid), "1 or 0", 1.0),
            row("host lateness p95", report.lateness_p95_s, "s", 0.05 * report.stage_s),
            row("scheduler core busy", report.busy_share, "share", 0.8),
            row("accelerator busy", report.accel_busy, "share", 1.0),
            row("host attention busy", report.cpu_busy, "share", 1.0),
        ]
    return tuple(rows)


def describe(outcome: PacedOutcome) -> list[str]:
    """Lines for people: fraction of bound first, absolute last, then what to distrust."""
    alone = outcome.baseline
    lines = [
        f"paced emulation of {outcome.cell.hardware.name}; contention {alone.report.contention}",
        f"host: reads {outcome.rates.read_bytes_per_s / 1e9:.1f} GB/s, attends "
        f"{outcome.rates.attention_bytes_per_s / 1e9:.1f} GB/s "
        f"({outcome.rates.attention_bytes_per_s / outcome.rates.read_bytes_per_s:.0%})",
        f"bound of the gain x = B_c T_sweep / KV_gpu = {outcome.gain_bound:.1%}",
    ]
    for result in outcome.results:
        gain = result.tokens_per_s / alone.tokens_per_s - 1
        lines.append(
            f"{result.strategy:11} {gain:+7.1%} of gpu-only, {gain / outcome.gain_bound:+.0%} of "
            f"the bound; {result.tokens_per_s:.0f} tokens/s with {result.load.device_rows} + "
            f"{result.load.host_rows} sequences; accelerator {result.report.accel_busy:.0%} busy, "
            f"host attention {result.report.cpu_busy:.0%}"
        )
        lines += [f"  INVALID: {reason}" for reason in result.report.reasons]
    lines += [f"  {ratio}" for ratio in outcome.ratios]
    return lines
