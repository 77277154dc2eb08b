"""Build an engine core: resolve devices and sizes, load the model, put everything together."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.devices.cpu import bound_threads
from tandem.engine.building.model_loading import (
    choose_types,
    copy_notes,
    device_kernel_notes,
    host_kernel_notes,
    load_reported,
    require_compiled,
    with_usable_ends,
)
from tandem.engine.building.scheduler_options import host_prefix_share, prices_of, scheduler_config
from tandem.engine.building.target import Target, resolve_target
from tandem.engine.building.tracing import begin_to_count, traced
from tandem.engine.building.warm_up import measure_workspace, run_largest_steps, warm_up_blocks
from tandem.engine.core import EngineCore
from tandem.engine.sizing.context_length import model_for_length
from tandem.engine.sizing.expert_hits_file import check_writable, write_expert_hits
from tandem.engine.sizing.memory_plan import MemoryPlan, plan_memory
from tandem.engine.sizing.plan_options import planned_file
from tandem.engine.sizing.planned import plan_note, require_as_planned
from tandem.engine.sizing.target_rates import with_rates
from tandem.engine.stats_collector import StatsCollector
from tandem.kernels import native
from tandem.kernels.open_pool import open_pool
from tandem.memory.ledger import MemoryLedger
from tandem.memory.pool import BlockPool
from tandem.memory.process_peak import ProcessPeak
from tandem.models.config import read_model_spec
from tandem.models.expert_hits import ExpertHits
from tandem.models.model import Model
from tandem.models.resolve import resolve_model
from tandem.plan.sweep_layers import SweepChoice
from tandem.plan.weights import PlacedWeights, disk_layers
from tandem.runtime.assemble import Assembled, on_cuda, on_exact_emulator, on_host
from tandem.runtime.build_machine import GraphRoom, MachineSizes
from tandem.runtime.machine import Machine
from tandem.scheduler.scheduler import Scheduler
from tandem.scheduler.strategies.registry import make_strategy
from tandem.spec.accelerator import AcceleratorChoice
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision
from tandem.spec.progress import Progress, no_progress
from tandem.spec.tier import Tier

if TYPE_CHECKING:
    from tandem.engine.engine_trace import EngineTrace
    from tandem.engine.sizing.graph_choice import GraphChoice
    from tandem.memory.disk_index import DiskIndex
    from tandem.plan.executed_op import OpListener
    from tandem.runtime.page_file import PageFile
    from tandem.runtime.page_worker import PageWorker

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineParts:
    """All of an engine that takes memory: the model is loaded, pages are allocated.

    Attributes:
        precision: of weights, activations and KV.
        disk: for cached prefixes; whoever does not make a core of the parts closes it.
    """

    config: EngineConfig
    spec: ModelSpec
    target: Target
    precision: Precision
    memory: MemoryPlan
    assembled: Assembled
    disk: "PageFile | None" = None

    def run_largest_steps(self) -> None:
        """Reach the largest shapes that a step may have; nothing else may be in flight."""
        limits = scheduler_config(self.memory.plan, self.config, self.spec)
        blocks = warm_up_blocks(limits, self.memory)
        executor, vocab_size = self.assembled.executor, self.spec.vocab_size
        run_largest_steps(executor, vocab_size, limits, self.memory.plan.strategy, blocks)


def build_engine_core(
    config: EngineConfig, progress: Progress = no_progress, *, check: bool = False
) -> EngineCore:
    """Load the model and build the engine around it.

    Args:
        check: verify conservation after every event, and warm the emulated accelerator up too, so
            that growth can be told (tests). CUDA is always warmed up.

    Raises:
        TandemError: the model cannot be loaded, a flag is wrong, or memory does not suffice.
    """
    with traced(config) as trace:
        parts = build_parts(config, progress, () if trace is None else (trace.executed,))
        kind = parts.target.choice.kind
        warm = kind == "cuda" or (check and kind == "emulated")
        with closed_unless_done(parts.disk):
            if warm:
                parts.run_largest_steps()
            return core_of(parts, check=check, warm=warm, trace=trace)


def build_parts(
    config: EngineConfig,
    progress: Progress = no_progress,
    listeners: "Sequence[OpListener]" = (),
) -> EngineParts:
    """Resolve devices and sizes, load the model, allocate its memory.

    Args:
        listeners: told of every operation that the executor ends.

    Raises:
        TandemError: see `build_engine_core`.
    """
    thread_notes = bound_threads()
    directory = resolve_model(config.model)
    spec, eos_notes = with_usable_ends(read_model_spec(directory))
    planned = planned_file(config, spec)
    spec, length_notes = model_for_length(spec, config.max_model_len)
    target = resolve_target(config)
    if config.save_expert_hits is not None:
        check_writable(Path(config.save_expert_hits), spec)
    pool = open_pool() if target.device.type == "cpu" else None
    precision, precision_notes = choose_types(config, spec, target, directory, pool)
    notes = eos_notes + length_notes + precision_notes
    notes += target.notes + thread_notes + host_kernel_notes(spec)
    lacking = device_kernel_notes(target.device)
    notes += lacking
    if config.attention_backend != "auto":
        from tandem.engine.sizing.attention_choice import check_attention_backend

        check_attention_backend(config.attention_backend, spec, precision, target.device)
    if planned is not None:
        require_as_planned(planned, precision, target.choice)
        notes = (plan_note(str(config.plan), planned), *notes)
    decided = None if planned is None else planned.online
    compiled = native.reason_against(spec.head_dim) is None
    capacities = replace(target.capacities, compiled=compiled, experts_at_once=not lacking)

    def sized(target: Target, notes: tuple[str, ...]) -> MemoryPlan:
        return plan_memory(
            config, spec, precision, capacities, notes, hardware=target.hardware, planned=decided
        )

    memory = sized(target, notes)
    rated, rates_notes = with_rates(target, config, memory.plan.weights, directory)
    if rates_notes:
        target, notes = rated, notes + rates_notes
        memory = sized(target, notes)
    disk = _kv_disk(config, spec, precision, memory, target, directory)
    with closed_unless_done(disk):
        placement = memory.plan.weights
        layers = SweepChoice.of_plan(placement, memory.plan.cpu_rules)
        if pool is None and layers.uses_cpu:
            pool = open_pool()
        if memory.graphs is not None:
            pool = None  # graphs are of torch's operations, compiled ones would not be recorded
        # beside an accelerator reads have an order of their own
        on_disk = layers.usual.on_disk or disk_layers(placement)
        if on_disk:
            copied, computed = layers.usual.streamed.on_disk, layers.usual.read_on_cpu
            require_compiled(spec, computes=bool(computed or not copied))
        model = load_reported(
            directory, config, precision, target.device, pool, layers, on_disk,
            memory.plan.embedding, progress,
        )  # fmt: skip
        if target.choice.kind == "cuda":
            limits = scheduler_config(memory.plan, config, spec)
            measured = measure_workspace(model, limits, memory, config.attention_backend)
            memory = plan_memory(
                config, spec, precision, capacities, notes, measured,
                PlacedWeights(placement, memory.plan.embedding), target.hardware, decided,
            )  # fmt: skip
        assembled = assemble(config, model, memory, target.choice, listeners)
        said = _graph_notes(config, assembled.machine) + assembled.notes
        memory = _with_notes(memory, said + copy_notes(config, on_disk))
        return EngineParts(config, spec, target, precision, memory, assembled, disk)


def _graph_notes(config: EngineConfig, machine: Machine) -> tuple[str, ...]:
    """What came of recording graphs, if it was tried."""
    graphs, layers = machine.runner.graphs, machine.runner.layer_graphs
    if graphs is None:
        return ()
    from tandem.engine.sizing.graph_choice import recorded_notes

    return recorded_notes(config, graphs, layers)


def _with_notes(memory: MemoryPlan, notes: tuple[str, ...]) -> MemoryPlan:
    return replace(memory, plan=replace(memory.plan, notes=memory.plan.notes + notes))


def _kv_disk(
    config: EngineConfig,
    spec: ModelSpec,
    precision: Precision,
    memory: MemoryPlan,
    target: Target,
    directory: Path,
) -> "PageFile | None":
    """Before gigabytes are loaded for an engine that could not have it."""
    if config.kv_disk is None:
        return None
    from tandem.engine.kv_disk import open_kv_disk, require_host_prefixes

    if target.choice.kind != "none":
        require_host_prefixes(config, memory.plan, target.hardware)
    return open_kv_disk(config, spec, precision, memory.page, directory)


@contextmanager
def closed_unless_done(disk: "PageFile | None") -> Iterator[None]:
    """Let others use the disk if the engine does not come to be."""
    try:
        yield
    except BaseException:
        if disk is not None:
            disk.close()
        raise


def assemble(
    config: EngineConfig,
    model: Model,
    memory: MemoryPlan,
    choice: AcceleratorChoice,
    listeners: "Sequence[OpListener]" = (),
) -> Assembled:
    """Allocate what the plan says and make the executor."""
    plan = memory.plan
    emulated = choice.kind == "emulated"
    sizes = MachineSizes(
        page=memory.page,
        device_blocks=plan.device_blocks,
        host_blocks=plan.host_blocks,
        max_rows=config.max_num_seqs,
        workspace_bytes=memory.workspace_bytes if emulated else None,
        graphs=None if memory.graphs is None else _graph_room(memory.graphs, plan.host_blocks),
        batched_copies=config.link_copies == "batched",
        attention=config.attention_backend,
    )
    if choice.kind == "cuda":
        return on_cuda(model, sizes, listeners)
    if emulated:
        return on_exact_emulator(model, sizes, choice.seed, listeners)
    return on_host(model, sizes, listeners=listeners)


def _graph_room(graphs: "GraphChoice", host_blocks: int) -> GraphRoom:
    from tandem.engine.sizing.graph_choice import RECORDING_LIMIT_S

    return GraphRoom(
        graphs.max_rows,
        graphs.max_blocks,
        RECORDING_LIMIT_S,
        graphs.size_bytes,
        hybrid=graphs.hybrid and host_blocks > 0,
    )


def core_of(
    parts: EngineParts,
    *,
    check: bool = False,
    warm: bool = False,
    trace: "EngineTrace | None" = None,
) -> EngineCore:
    """Scheduler, collector and loop over an engine's parts, which have run their largest steps
    already if `warm`.
    """
    config, spec, memory, assembled = parts.config, parts.spec, parts.memory, parts.assembled
    plan = memory.plan
    pools = {
        Tier.DEVICE: BlockPool(Tier.DEVICE, plan.device_blocks),
        Tier.HOST: BlockPool(Tier.HOST, plan.host_blocks),
    }
    share = host_prefix_share(config, plan, parts.target.hardware)
    scheduler = Scheduler(
        replace(scheduler_config(plan, config, spec), host_prefix_share=share),
        make_strategy(plan.strategy),
        pools,
        vocab_size=spec.vocab_size,
        eos_ids=spec.eos_token_ids,
        enable_prefix_caching=config.enable_prefix_caching,
        publish_moved=not memory.page.converts,
        prices=prices_of(
            plan,
            spec,
            parts.precision,
            memory.page,
            parts.target.hardware,
            config,
            share,
        ),
        clock=time.perf_counter,
        stored=None if parts.disk is None else _stored(parts.disk),
    )
    record_actual(memory.ledger, assembled.machine)
    hits = assembled.machine.runner.expert_hits
    hits.clear()
    collector = StatsCollector(
        scheduler,
        plan,
        memory.page,
        memory.ledger,
        assembled.measures,
        str(parts.precision),
        hits.by_layer,
        ProcessPeak(parts.target.host),
    )
    if warm:
        collector.mark_warm()
    begin_to_count(assembled.measures.overlap, trace)
    return EngineCore(
        scheduler,
        assembled.executor,
        collector,
        overlap=config.overlap,
        check=check,
        release=_at_end(config, hits, assembled.machine.free),
        trace=trace,
        disk=None if parts.disk is None else _disk_worker(parts.disk, scheduler, parts),
    )


def _stored(disk: "PageFile") -> "DiskIndex":
    from tandem.memory.disk_index import DiskIndex

    return DiskIndex(disk.num_slots, disk.stored())


def _disk_worker(disk: "PageFile", scheduler: Scheduler, parts: EngineParts) -> "PageWorker":
    from tandem.runtime.page_worker import PageWorker

    assert scheduler.disk is not None
    pages = parts.assembled.machine.kv.bytes_in_host_memory(scheduler.disk.tier)
    return PageWorker(disk, pages)


def _at_end(config: EngineConfig, hits: ExpertHits, free: Callable[[], None]) -> Callable[[], None]:
    """What is left to do when nothing is in flight any more."""

    def end() -> None:
        if config.save_expert_hits is not None:
            path, name = Path(config.save_expert_hits), Path(config.model).name
            try:
                write_expert_hits(path, name, hits.by_layer())
            except ConfigError as error:  # the requests have been answered all the same
                _LOG.error("%s", error.message)
        free()

    return end


def record_actual(ledger: MemoryLedger, machine: Machine) -> None:
    """Enter what was allocated for good."""
    weights = machine.runner.weights
    beside = any(entry.location == "device" for entry in ledger.entries)
    for entry in ledger.entries:
        if entry.label == "kv pool":
            tier = Tier.HOST if entry.location == "host" and beside else Tier.DEVICE
            ledger.record_actual(entry.location, entry.label, machine.kv.size_bytes(tier))
        elif entry.label == "weights":
            on_host = entry.location == "host" and weights.host_bytes > 0
            size = weights.host_bytes if on_host else weights.resident_bytes
            if entry.location == "disk":
                size = weights.disk_bytes
            ledger.record_actual(entry.location, entry.label, size)
        elif entry.label == "weight slots":
            ledger.record_actual(entry.location, entry.label, weights.disk_slots_bytes)
        elif entry.label == "slot table":
            ledger.record_actual(entry.location, entry.label, machine.slots.nbytes)
        elif entry.label == "CUDA graphs":
            graphs = machine.runner.layer_graphs or machine.runner.graphs
            if graphs is not None and graphs.recording.taken_bytes is not None:
                taken = graphs.recording.taken_bytes + machine.kv.spare_bytes(Tier.DEVICE)
                ledger.record_actual(entry.location, entry.label, taken)
        elif entry.label == "process":
            ledger.record_actual(entry.location, entry.label, entry.predicted_bytes)
