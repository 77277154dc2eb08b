"""One cell of the paced bench: a model on an emulated accelerator, decoding in a steady state."""

import time
from dataclasses import dataclass, replace

from tandem.bench.steady_start import DEVICE, HOST, SteadyStart, fill
from tandem.engine.build_paced import PacedEngine, PacedOptions, build_paced_core
from tandem.memory.page import KVPageSpec
from tandem.plan.online import OnlinePlan
from tandem.runtime.paced.report import PacedReport
from tandem.scheduler.strategies.registry import make_strategy
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import DType
from tandem.spec.hardware import HardwareSpec
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import kv_bytes_per_token

_GROWTH_TOKENS = 256
_MIN_PERIODS = 3


@dataclass(frozen=True, slots=True)
class PacedCell:
    """What all strategies of a comparison share.

    Attributes:
        context: mean tokens of a sequence at the start.
        cores: of the host's attention.
        cache_bytes: the last-level cache; None asks sysfs.
    """

    hardware: HardwareSpec
    model: ModelSpec
    dtype: DType
    context: int
    cores: tuple[int, ...]
    block_size: int = 64
    cache_bytes: int | None = None

    @property
    def page(self) -> KVPageSpec:
        """Of both tiers."""
        return KVPageSpec.of_model(self.model, dtype=self.dtype, block_size=self.block_size)

    @property
    def blocks_per_row(self) -> int:
        """Blocks of a mean sequence, its growth included."""
        return self.page.blocks_for_tokens(self.context + _GROWTH_TOKENS)

    @property
    def row_layer_bytes(self) -> float:
        """Keys and values of a mean sequence in one layer."""
        return self.context * kv_bytes_per_token(self.model, self.dtype) / self.model.num_layers


@dataclass(frozen=True, slots=True)
class Load:
    """How many sequences decode, where, and the bounds under which cohorts join."""

    device_rows: int
    host_rows: int = 0
    max_join_wait_s: float = 0.002


@dataclass(frozen=True, slots=True)
class CellResult:
    """Steady decode of one strategy.

    Attributes:
        tokens_per_s: emitted in the window, over its wall time.
        spread: lowest and highest such rate of single periods.
        period_s: mean time between tokens of the slowest rows.
    """

    strategy: str
    load: Load
    tokens_per_s: float
    spread: tuple[float, float]
    period_s: float
    joins: int
    waits: int
    accelerator: str
    report: PacedReport


def device_capacity(cell: PacedCell) -> int:
    """Sequences that fill the accelerator's KV memory."""
    engine = build(cell, "gpu-only", Load(1))
    engine.core.close()
    return engine.memory.plan.device_blocks // cell.blocks_per_row


def build(cell: PacedCell, strategy: str, load: Load) -> PacedEngine:
    """A paced engine for one load; the host's pool is as large as the load needs."""
    host_bytes = load.host_rows * cell.blocks_per_row * cell.page.bytes_per_block
    config = EngineConfig(
        model=cell.hardware.name,
        dtype=cell.dtype.value,
        cpu_memory=str(host_bytes),
        strategy=strategy,
        block_size=cell.block_size,
        max_num_seqs=max(512, load.device_rows + load.host_rows),
        max_num_batched_tokens=max(2048, 2 * cell.context),
        max_model_len=2 * (cell.context + _GROWTH_TOKENS),
        enable_prefix_caching=False,
    )

    def with_bounds(plan: OnlinePlan) -> OnlinePlan:
        rows = max(1, load.host_rows)
        return replace(plan, max_cohort_rows=rows, max_join_wait_s=load.max_join_wait_s)

    options = PacedOptions(cores=cell.cores, cache_bytes=cell.cache_bytes, plan=with_bounds)
    steady = SteadyStart(make_strategy(strategy))
    return build_paced_core(config, cell.model, cell.hardware, options, strategy=steady)


def run_cell(cell: PacedCell, strategy: str, load: Load, min_window_s: float) -> CellResult:
    """Fill, let one period of the slowest rows pass, then measure whole periods."""
    engine = build(cell, strategy, load)
    rows = {DEVICE: load.device_rows, HOST: load.host_rows}
    try:
        fill(engine, rows, cell.context, _GROWTH_TOKENS)
        slowest = HOST if load.host_rows else DEVICE
        _next_emission(engine, slowest)
        return _measure(engine, strategy, load, slowest, min_window_s)
    finally:
        engine.core.close()


def _measure(
    engine: PacedEngine, strategy: str, load: Load, slowest: str, min_window_s: float
) -> CellResult:
    _next_emission(engine, slowest)
    before = engine.core.stats()
    engine.executor.begin_window()
    begin = last = time.perf_counter()
    rates: list[float] = []
    tokens = 0
    while len(rates) < _MIN_PERIODS or last - begin < min_window_s:
        emitted = _next_emission(engine, slowest)
        now = time.perf_counter()
        rates.append(emitted / (now - last))
        tokens += emitted
        last = now
    report, after = engine.executor.report(), engine.core.stats()
    return CellResult(
        strategy=strategy,
        load=load,
        tokens_per_s=tokens / (last - begin),
        spread=(min(rates), max(rates)),
        period_s=(last - begin) / len(rates),
        joins=after.cohort_joins - before.cohort_joins,
        waits=after.cohort_waits - before.cohort_waits,
        accelerator=after.accelerator,
        report=report,
    )


def _next_emission(engine: PacedEngine, slowest: str) -> int:
    """Run until rows of `slowest` emit; tokens that all rows emitted meanwhile."""
    tokens = 0
    while True:
        outputs = engine.core.step()
        tokens += sum(len(output.token_ids) for output in outputs)
        if any(output.request_id.startswith(slowest) for output in outputs):
            return tokens
