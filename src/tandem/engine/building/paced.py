"""Build an engine on the paced emulator: for benches and tests, since it returns no text."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tandem.cost.step_prices import StepPrices
from tandem.engine.building.paced_machine import (
    PACED,
    PACED_NOTE,
    PacedMeasures,
    PacedOptions,
    PacedSizes,
    paced_capacities,
    paced_dtype,
    paced_executor,
    require_disk_rate,
)
from tandem.engine.building.scheduler_options import host_prefix_share, prices_of, scheduler_config
from tandem.engine.building.tracing import begin_to_count, traced
from tandem.engine.core import EngineCore
from tandem.engine.sizing.expert_hits_file import read_expert_use
from tandem.engine.sizing.memory_plan import MemoryPlan, plan_memory
from tandem.engine.sizing.plan_options import planned_file
from tandem.engine.sizing.planned import plan_note, require_as_planned
from tandem.engine.stats_collector import StatsCollector
from tandem.memory.pool import BlockPool
from tandem.plan.executed_op import OpListener
from tandem.plan.sweep_layers import SweepChoice
from tandem.runtime.overlap_meter import OverlapMeter
from tandem.runtime.paced.executor import PacedClock, PacedExecutor, RealClock
from tandem.runtime.paced.journal import ProgramJournal
from tandem.runtime.paced.pool import HostPool
from tandem.scheduler.scheduler import Scheduler
from tandem.scheduler.strategies.base import Strategy
from tandem.scheduler.strategies.registry import make_strategy
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.hardware import HardwareSpec
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision
from tandem.spec.request import EngineRequest
from tandem.spec.tier import Tier


class _Core(EngineCore):
    """Notes requests in a journal, if there is one."""

    journal: ProgramJournal | None = None

    def add_request(self, request: EngineRequest) -> None:
        super().add_request(request)
        if self.journal is not None:
            self.journal.asked(request)


@dataclass(frozen=True, slots=True)
class PacedEngine:
    """An engine on the paced emulator, and the emulator itself.

    Attributes:
        journal: of its programs, if it was asked for.
    """

    core: EngineCore
    executor: PacedExecutor
    memory: MemoryPlan
    journal: ProgramJournal | None = None


def build_paced_core(
    config: EngineConfig,
    spec: ModelSpec,
    hardware: HardwareSpec,
    options: PacedOptions | None = None,
    *,
    strategy: Strategy | None = None,
    prices: StepPrices | None = None,
    clock: PacedClock | None = None,
    pool: HostPool | None = None,
    listeners: Sequence[OpListener] = (),
    journaled: bool = False,
) -> PacedEngine:
    """An engine whose accelerator keeps to `hardware`'s times and whose CPU really works.

    Weights and KV on the device are accounted, not allocated; synthetic tokens never end a
    sequence, so that requests run to their `max_tokens`.

    Args:
        config: `model` is a label only; `gpu_memory` of `auto` is the description's. Its `plan`
            is executed as by any engine.
        strategy: takes the place of the one that `config` names.
        prices: what the scheduler knows of steps' times; None: as the description has them.
        clock, pool: virtual ones make a run deterministic (tests); by default real.
        listeners: told of every operation whose end is known.
        journaled: keep what is submitted and told, to be executed again.

    Raises:
        ConfigError: the weights do not fit, or a flag is wrong.
    """
    options = options or PacedOptions()
    dtype = paced_dtype(config, spec)
    memory = _plan(config, spec, dtype, hardware, options)
    if options.expert_use is None and config.expert_hits is not None:
        options = replace(options, expert_use=read_expert_use(Path(config.expert_hits), spec))
    plan = memory.plan
    sizes = PacedSizes(
        memory.page,
        plan.host_blocks,
        SweepChoice.of_plan(plan.weights, plan.cpu_rules),
        plan.embedding,
    )
    clock = clock or RealClock()
    scheduler = _scheduler(config, spec, dtype, hardware, memory, strategy, prices, clock)
    journal = ProgramJournal(lambda: scheduler.rows.request_ids.copy()) if journaled else None
    with traced(config, clock.now) as trace:
        meter = OverlapMeter()
        told = (meter.executed, *(() if trace is None else (trace.executed,)), *listeners)
        executor = paced_executor(spec, sizes, hardware, options, clock, pool, told, journal)
        begin_to_count(meter, trace)
        measures = PacedMeasures(hardware, memory.ledger, meter)
        collector = StatsCollector(
            scheduler, plan, memory.page, memory.ledger, measures, str(dtype)
        )
        core = _Core(scheduler, executor, collector, overlap=config.overlap, trace=trace)
        core.journal = journal
        return PacedEngine(core, executor, memory, journal)


def _scheduler(
    config: EngineConfig,
    spec: ModelSpec,
    dtype: DType,
    hardware: HardwareSpec,
    memory: MemoryPlan,
    strategy: Strategy | None,
    prices: StepPrices | None,
    clock: PacedClock,
) -> Scheduler:
    plan, page = memory.plan, memory.page
    share = host_prefix_share(config, plan, hardware)
    if prices is None:
        precision = Precision.uniform(dtype)
        prices = prices_of(plan, spec, precision, page, hardware, config, share)
    return Scheduler(
        replace(scheduler_config(plan, config, spec), host_prefix_share=share),
        strategy or make_strategy(plan.strategy),
        {
            Tier.DEVICE: BlockPool(Tier.DEVICE, plan.device_blocks),
            Tier.HOST: BlockPool(Tier.HOST, plan.host_blocks),
        },
        vocab_size=spec.vocab_size,
        enable_prefix_caching=config.enable_prefix_caching,
        prices=prices,
        clock=clock.now,
    )


def _plan(
    config: EngineConfig,
    spec: ModelSpec,
    dtype: DType,
    hardware: HardwareSpec,
    options: PacedOptions,
) -> MemoryPlan:
    if config.kv_disk is not None:
        raise ConfigError(
            "--kv-disk cannot be paced, because what the paced emulator's host memory holds is "
            "nobody's KV; leave it out",
            param="kv_disk",
        )
    if config.cuda_graphs == "on":
        raise ConfigError(
            "--cuda-graphs on cannot be paced: the paced emulator launches nothing; leave it out",
            param="cuda_graphs",
        )
    precision = Precision.uniform(dtype)
    planned, notes = planned_file(config, spec), (PACED_NOTE,)
    if planned is not None:
        require_as_planned(planned, precision, PACED)
        notes = (plan_note(str(config.plan), planned), *notes)
    memory = plan_memory(
        config,
        spec,
        precision,
        paced_capacities(config, hardware),
        notes,
        hardware=hardware,
        planned=None if planned is None else planned.online,
    )
    require_disk_rate(memory.plan.weights, hardware)
    return replace(memory, plan=options.plan(memory.plan))
