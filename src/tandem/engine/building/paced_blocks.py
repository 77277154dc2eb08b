"""Build an engine of an offline plan on the paced emulator: for benches and tests."""

from collections.abc import Sequence
from dataclasses import dataclass

from tandem.engine.block_core import BlockCore
from tandem.engine.block_stats import BlockCounts, BlockStats
from tandem.engine.building.blocks import block_scheduler
from tandem.engine.building.paced_machine import (
    PACED,
    PACED_NOTE,
    PacedMeasures,
    PacedOptions,
    PacedSizes,
    paced_capacities,
    paced_executor,
    require_disk_rate,
)
from tandem.engine.building.paced_types import block_types
from tandem.engine.building.tracing import begin_to_count, traced
from tandem.engine.sizing.block_memory import BlockMemory, plan_block_memory
from tandem.engine.sizing.context_length import model_for_length
from tandem.engine.sizing.plan_options import planned_file
from tandem.engine.sizing.planned import block_plan_note, bounded_pinned, require_as_planned
from tandem.plan.executed_op import OpListener
from tandem.runtime.overlap_meter import OverlapMeter
from tandem.runtime.paced.executor import PacedClock, PacedExecutor, RealClock
from tandem.runtime.paced.pool import HostPool
from tandem.runtime.paced.types import PacedTypes
from tandem.scheduler.blocks.block_scheduler import BlockScheduler
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import parse_dtype
from tandem.spec.errors import ConfigError
from tandem.spec.hardware import HardwareSpec
from tandem.spec.model import ModelSpec


@dataclass(frozen=True, slots=True)
class PacedBlocks:
    """An engine of an offline plan on the paced emulator, and what it consists of."""

    core: BlockCore
    scheduler: BlockScheduler
    executor: PacedExecutor
    memory: BlockMemory


def build_paced_blocks(
    config: EngineConfig,
    spec: ModelSpec,
    hardware: HardwareSpec,
    options: PacedOptions | None = None,
    *,
    clock: PacedClock | None = None,
    pool: HostPool | None = None,
    listeners: Sequence[OpListener] = (),
    check: bool = False,
    counts: BlockCounts | None = None,
) -> PacedBlocks:
    """An engine of blocks whose accelerator keeps to `hardware`'s times.

    As `build_paced_core`: memory is accounted, tokens are synthetic and end no sequence.

    Args:
        config: its `plan` is an offline one; `model` is a label only.
        clock, pool: virtual ones make a run deterministic, and take no real time.
        listeners: told of every operation.
        check: verify conservation after every step (tests).
        counts: of engines before this one.

    Raises:
        ConfigError: the plan is another model's, of types that are not emulated, or does not fit.
    """
    options = options or PacedOptions()
    planned = planned_file(config, spec)
    assert planned is not None, "an engine of blocks has a plan"
    planned = bounded_pinned(planned, config.pinned_memory)
    plan = planned.blocks
    types = block_types(plan, spec, parse_dtype(config.dtype))
    _require_virtual(types, pool)
    precision = types.precision
    require_as_planned(planned, precision, PACED)
    require_disk_rate(plan.weights, hardware)
    spec, length_notes = model_for_length(spec, config.max_model_len)
    memory = plan_block_memory(plan, spec, precision, paced_capacities(config, hardware))
    sizes = PacedSizes(memory.page, memory.room.host_blocks, plan.layers, types=types)
    scheduler = block_scheduler(plan, config, spec, memory)
    note = block_plan_note(str(config.plan), planned, plan)
    clock = clock or RealClock()
    with traced(config, clock.now) as trace:
        meter = OverlapMeter()
        told = (meter.executed, *listeners, *(() if trace is None else (trace.executed,)))
        executor = paced_executor(spec, sizes, hardware, options, clock, pool, told)
        begin_to_count(meter, trace)
        stats = BlockStats(
            scheduler,
            memory.page,
            memory.ledger,
            PacedMeasures(hardware, memory.ledger, meter),
            str(precision),
            plan.max_model_len,
            (note, *length_notes, PACED_NOTE, *plan.notes),
            counts=counts,
        )
        core = BlockCore(scheduler, executor, stats, check=check, trace=trace)
        return PacedBlocks(core, scheduler, executor, memory)


def _require_virtual(types: PacedTypes, pool: HostPool | None) -> None:
    """The host's real work is on pages and weights of floats.

    Raises:
        ConfigError: something is in few bits, and the host works for real.
    """
    if types.has_codes and pool is None:
        raise ConfigError(
            "few bits are paced in virtual time only: what the host really computes here is in "
            "floating point; plan without them",
            param="plan",
        )
