"""All of an engine that takes memory: the model loaded, pages allocated."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tandem.engine.building.model_loading import (
    disk_notes,
    load_reported,
    refuse_direct_on_cpu,
    require_compiled,
)
from tandem.engine.building.scheduler_options import scheduler_config
from tandem.engine.building.situation import Situation, situation_of, with_sizes
from tandem.engine.building.target import Target
from tandem.engine.building.warm_up import measure_workspace, run_largest_steps, warm_up_blocks
from tandem.engine.sizing.memory_plan import MemoryPlan
from tandem.kernels.open_pool import open_pool
from tandem.models.model import Model
from tandem.plan.sweep_layers import SweepChoice
from tandem.plan.weights import PlacedWeights, disk_layers
from tandem.runtime.assemble import Assembled, on_exact_emulator, on_host
from tandem.runtime.build_machine import GraphRoom, MachineSizes
from tandem.runtime.machine import Machine
from tandem.spec.accelerator import AcceleratorChoice
from tandem.spec.config import EngineConfig
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision
from tandem.spec.progress import Progress, no_progress

if TYPE_CHECKING:
    from tandem.engine.sizing.graph_choice import GraphChoice
    from tandem.plan.executed_op import OpListener
    from tandem.runtime.page_file import PageFile


@dataclass(frozen=True, slots=True)
class EngineParts:
    """All of an engine that takes memory: the model is loaded, pages are allocated.

    Attributes:
        precision: of weights, activations and KV.
        disk: for cached prefixes; whoever does not make a core of the parts closes them.
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

    def close(self) -> None:
        """End what runs and free all, where no core will."""
        if self.disk is not None:
            self.disk.close()
        self.assembled.executor.close()
        self.assembled.release()


def build_parts(
    config: EngineConfig,
    progress: Progress = no_progress,
    listeners: "Sequence[OpListener]" = (),
) -> EngineParts:
    """Resolve devices and sizes, load the model, allocate its memory.

    Args:
        listeners: told of every operation that the executor ends.

    Raises:
        TandemError: the model cannot be loaded, a flag is wrong, or memory does not suffice.
    """
    situation, memory = with_sizes(situation_of(config))
    disk = _kv_disk(situation, memory)
    with closed_unless_done(disk):
        layers = SweepChoice.of_plan(memory.plan.weights, memory.plan.cpu_rules)
        # beside an accelerator reads have an order of their own
        on_disk = layers.usual.on_disk or disk_layers(memory.plan.weights)
        model = _load(situation, memory, layers, on_disk, progress)
        if memory.graphs is not None:
            model.native = None  # graphs are of torch's operations: compiled ones are not recorded
        memory = _with_measured_workspace(situation, memory, model)
        target = situation.target
        assembled = assemble(config, model, memory, target.choice, listeners)
        said = _graph_notes(config, assembled.machine) + assembled.notes
        said += disk_notes(config, on_disk, on_gpu=target.choice.kind == "cuda")
        memory = _with_notes(memory, said)
        spec, precision = situation.spec, situation.precision
        return EngineParts(config, spec, target, precision, memory, assembled, disk)


def _load(
    situation: Situation,
    memory: MemoryPlan,
    layers: SweepChoice,
    on_disk: tuple[int, ...],
    progress: Progress,
) -> Model:
    spec, pool = situation.spec, situation.pool
    if pool is None and layers.uses_cpu:
        pool = open_pool()
    if on_disk:
        copied, computed = layers.usual.streamed.on_disk, layers.usual.read_on_cpu
        require_compiled(spec, computes=bool(computed or not copied))
        refuse_direct_on_cpu(situation.config, computed)
    return load_reported(
        situation.directory, situation.config, situation.precision, situation.target.device,
        pool, layers, on_disk, memory.plan.embedding, progress,
    )  # fmt: skip


def _with_measured_workspace(situation: Situation, memory: MemoryPlan, model: Model) -> MemoryPlan:
    """Sized again by what a step's activations really take, where the device can tell."""
    if situation.target.choice.kind != "cuda":
        return memory
    config, plan = situation.config, memory.plan
    limits = scheduler_config(plan, config, situation.spec)
    measured = measure_workspace(model, limits, memory, config.attention_backend)
    return situation.sized(measured, PlacedWeights(plan.weights, plan.embedding))


def _graph_notes(config: EngineConfig, machine: Machine) -> tuple[str, ...]:
    """What came of recording graphs, if it was tried."""
    graphs, layers = machine.runner.graphs, machine.runner.layer_graphs
    if graphs is None and layers is None:
        return ()
    from tandem.engine.sizing.graph_choice import recorded_notes

    return recorded_notes(config, graphs, layers, machine.runner.hybrid)


def _with_notes(memory: MemoryPlan, notes: tuple[str, ...]) -> MemoryPlan:
    return replace(memory, plan=replace(memory.plan, notes=memory.plan.notes + notes))


def _kv_disk(situation: Situation, memory: MemoryPlan) -> "PageFile | None":
    """Before gigabytes are loaded for an engine that could not have it."""
    config, target = situation.config, situation.target
    if config.kv_disk is None:
        return None
    from tandem.engine.kv_disk import open_kv_disk, require_host_prefixes

    if target.choice.kind != "none":
        require_host_prefixes(config, memory.plan, target.hardware)
    spec, precision = situation.spec, situation.precision
    return open_kv_disk(config, spec, precision, memory.page, situation.directory)


@contextmanager
def closed_unless_done(held: "PageFile | EngineParts | None") -> Iterator[None]:
    """Leave no file, threads or memory behind if the engine does not come to be."""
    try:
        yield
    except BaseException:
        if held is not None:
            held.close()
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
        stream_waits=config.link_waits == "stream",
        attention=config.attention_backend,
    )
    if choice.kind == "cuda":
        from tandem.runtime.assemble_cuda import on_cuda

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
        graphs.whole,
        # a step of the accelerator's alone is one graph, or as large as its launches do not matter
        graphs.parts if host_blocks or not graphs.whole else (),
    )
