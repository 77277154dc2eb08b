"""Build an engine that executes an offline plan."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tandem.devices.cpu import bound_threads
from tandem.engine.block_core import BlockCore
from tandem.engine.block_renewal import Renewal, RenewedBlocks, may_be_renewed, renewal_note
from tandem.engine.block_stats import BlockCounts, BlockStats
from tandem.engine.building.model_loading import (
    choose_types,
    device_kernel_notes,
    disk_notes,
    host_kernel_notes,
    load_reported,
    require_compiled,
    with_usable_ends,
)
from tandem.engine.building.target import resolve_target
from tandem.engine.building.tracing import begin_to_count, traced
from tandem.engine.memory_record import record_actual
from tandem.engine.sizing.block_memory import BlockMemory, plan_block_memory
from tandem.engine.sizing.block_options import refuse_beside_blocks
from tandem.engine.sizing.context_length import model_for_length
from tandem.engine.sizing.plan_options import require_settings
from tandem.engine.sizing.plan_threads import set_threads
from tandem.engine.sizing.planned import (
    block_plan_note,
    bounded_pinned,
    require_as_planned,
    require_model,
)
from tandem.kernels.open_pool import open_pool
from tandem.memory.process_peak import ProcessPeak
from tandem.models.config import read_model_spec
from tandem.models.model import Model
from tandem.models.resolve import resolve_model
from tandem.plan.offline import OfflinePlan
from tandem.plan.plan_file import PlanFile
from tandem.runtime.assemble import Assembled, on_exact_emulator
from tandem.runtime.build_machine import MachineSizes
from tandem.scheduler.blocks.block_scheduler import BlockScheduler
from tandem.scheduler.config import SchedulerConfig
from tandem.spec.accelerator import AcceleratorChoice
from tandem.spec.config import EngineConfig
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision
from tandem.spec.progress import Progress, no_progress
from tandem.spec.tier import Tier

if TYPE_CHECKING:
    from tandem.engine.engine_trace import EngineTrace
    from tandem.plan.executed_op import OpListener


def build_block_core(
    config: EngineConfig,
    planned: PlanFile,
    progress: Progress = no_progress,
    *,
    check: bool = False,
) -> BlockCore | RenewedBlocks:
    """Load the model, its weights and KV as the plan says; where passes turn out to take another
    time than was planned, another plan may come in its place.

    Args:
        check: verify conservation after every step (tests).

    Raises:
        TandemError: the model cannot be loaded, or is not the plan's; types or memory are not as
            planned.
    """
    begin_s = time.perf_counter()
    planned = bounded_pinned(planned, config.pinned_memory)
    with traced(config) as trace:
        built = _build(config, planned, progress, trace, check=check)
    load_s = time.perf_counter() - begin_s
    if planned.machine is None or not may_be_renewed(planned):
        return built.core

    def again(following: PlanFile, counts: BlockCounts) -> BlockCore:
        settings = replace(config, **following.settings)
        return _build(settings, following, no_progress, trace, check=check, counts=counts).core

    renewal = Renewal(built.spec, built.precision, planned.machine, again, load_s)
    return RenewedBlocks(built.core, planned, renewal)


@dataclass(frozen=True, slots=True)
class _Built:
    """An engine, and what of it another plan is made from."""

    core: BlockCore
    spec: ModelSpec
    precision: Precision


def _build(
    config: EngineConfig,
    planned: PlanFile,
    progress: Progress,
    trace: "EngineTrace | None",
    *,
    check: bool,
    counts: BlockCounts | None = None,
) -> _Built:
    plan = planned.blocks
    refuse_beside_blocks(config)
    thread_notes = bound_threads()
    directory = resolve_model(config.model)
    spec, eos_notes = with_usable_ends(read_model_spec(directory))
    require_settings(config, planned)
    require_model(planned, spec)
    spec, length_notes = model_for_length(spec, config.max_model_len)
    target = resolve_target(config)
    pool = open_pool() if target.device.type == "cpu" else None
    precision, type_notes = choose_types(config, spec, target, directory, pool, in_blocks=True)
    require_as_planned(planned, precision, target.choice)
    notes = (block_plan_note(str(config.plan), planned, plan), *eos_notes, *length_notes)
    if (said := renewal_note(planned, timed=target.choice.kind != "emulated")) is not None:
        notes += (said,)
    notes += type_notes + target.notes + thread_notes + host_kernel_notes(spec)
    notes += device_kernel_notes(target.device)
    direct = config.disk_io == "gpudirect"
    memory = plan_block_memory(plan, spec, precision, target.capacities, direct=direct)
    layers = plan.layers
    computing = pool
    if computing is None and layers.uses_cpu:
        computing = open_pool()
    on_disk = layers.usual.on_disk
    if on_disk:
        require_compiled(spec, computes=False)
    model = load_reported(
        directory,
        config,
        precision,
        target.device,
        computing,
        layers,
        on_disk,
        "resident",
        progress,
        resident_quantized=plan.quantized_layers != "streamed",
    )
    listeners = () if trace is None else (trace.executed,)
    assembled = _assemble(plan, model, memory, target.choice, listeners)
    notes += disk_notes(config, on_disk, on_gpu=target.choice.kind == "cuda")
    kernels = assembled.machine.runner.kernels[Tier.HOST]
    notes += set_threads(kernels, plan.threads, os.environ)
    scheduler = block_scheduler(plan, config, spec, memory)
    _record_actual(memory, assembled)
    hits = assembled.machine.runner.expert_hits
    hits.clear()
    stats = BlockStats(
        scheduler,
        memory.page,
        memory.ledger,
        assembled.measures,
        str(precision),
        plan.max_model_len,
        notes + plan.notes + assembled.notes,
        hits.by_layer,
        ProcessPeak(target.host),
        counts,
    )
    begin_to_count(assembled.measures.overlap, trace)
    free = assembled.release
    core = BlockCore(scheduler, assembled.executor, stats, check=check, release=free, trace=trace)
    return _Built(core, spec, precision)


def _assemble(
    plan: OfflinePlan,
    model: Model,
    memory: BlockMemory,
    choice: AcceleratorChoice,
    listeners: "Sequence[OpListener]",
) -> Assembled:
    emulated = choice.kind == "emulated"
    sizes = MachineSizes(
        page=memory.page,
        device_blocks=memory.room.device_blocks,
        host_blocks=memory.room.host_blocks,
        max_rows=plan.block_rows,
        workspace_bytes=memory.workspace_bytes if emulated else None,
        blocks=memory.room,
    )
    if emulated:
        return on_exact_emulator(model, sizes, choice.seed, listeners)
    from tandem.runtime.assemble_cuda import on_cuda

    return on_cuda(model, sizes, listeners)


def _record_actual(memory: BlockMemory, assembled: Assembled) -> None:
    """Enter what was allocated for good."""
    record_actual(memory.ledger, assembled.machine)
    blocks = assembled.machine.runner.blocks
    assert blocks is not None
    sizes = {"kv slots": blocks.passing.device_bytes, "activations": blocks.passing.host_bytes}
    for entry in memory.ledger.entries:
        if entry.label in sizes:
            memory.ledger.record_actual(entry.location, entry.label, sizes[entry.label])


def block_scheduler(
    plan: OfflinePlan, config: EngineConfig, spec: ModelSpec, memory: BlockMemory
) -> BlockScheduler:
    """Places and programs of the plan, for requests up to its length."""
    return BlockScheduler(
        plan,
        SchedulerConfig(
            num_layers=spec.num_layers,
            max_model_len=plan.max_model_len,
            max_len_is_planned=True,
            block_size=plan.block_size,
            max_num_seqs=plan.block_rows,
            max_num_queued_reqs=config.max_num_queued_reqs,
            seed=config.seed,
        ),
        vocab_size=spec.vocab_size,
        eos_ids=spec.eos_token_ids,
        prompt_tokens=memory.prompt_tokens,
    )
