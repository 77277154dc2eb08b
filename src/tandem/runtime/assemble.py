"""Put an executor together: memory, maths, and an order of execution."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch

from tandem.devices.cuda.device import device_node
from tandem.devices.cuda.driver import CudaDriver, open_stream_counters
from tandem.devices.cuda.graphs import CudaGraphs
from tandem.devices.cuda.memory import CudaMemory, pin, pinned_bytes
from tandem.kernels.tier_kernels import ReferenceKernels, StaticKernels, TierKernels
from tandem.memory.page import KVPageSpec
from tandem.memory.peaks import read_host_memory
from tandem.memory.workspace import StepMemory
from tandem.models.model import Model
from tandem.models.weights import spec_dtype
from tandem.plan.block_room import BlockRoom
from tandem.plan.program import Queue
from tandem.runtime.arena import Arena
from tandem.runtime.buffers import BufferSpace
from tandem.runtime.choose_kernels import choose_kernels, device_kernels, page_shape
from tandem.runtime.exact import ExactExecutor
from tandem.runtime.executor import Executor
from tandem.runtime.inline import InlineExecutor
from tandem.runtime.kv_store import KVStore
from tandem.runtime.machine import Machine
from tandem.runtime.measures import DeviceMeasures
from tandem.runtime.op_memory import OpMemory
from tandem.runtime.op_runner import OpRunner
from tandem.runtime.passing_memory import PassingMemory
from tandem.runtime.program_context import ContextCache
from tandem.runtime.running import Running
from tandem.runtime.staging import StagingShape
from tandem.spec.config import AttentionBackend
from tandem.spec.errors import ConfigError
from tandem.spec.tier import Tier
from tandem.spec.units import format_size

if TYPE_CHECKING:
    from tandem.devices.batch_copies import BatchCopies
    from tandem.devices.stream_counters import StreamCounters
    from tandem.plan.executed_op import OpListener
    from tandem.runtime.graph_maker import GraphMaker
    from tandem.runtime.host_tasks import HostTasks
    from tandem.runtime.layer_runner import LayerRunner
    from tandem.runtime.overlap_meter import OverlapMeter


@dataclass(frozen=True, slots=True)
class MachineSizes:
    """How much of everything to allocate.

    Attributes:
        workspace_bytes: bound on device activations; None counts without refusing.
        blocks: of an offline plan, what passes through the accelerator; None: programs are sweeps.
        graphs: sweeps that only decode are launched as one, if that can be; None: they are not.
        attention: what attends to prompts on a GPU.
        batched_copies: KV blocks cross a GPU's link by one call of the driver for all of a move.
    """

    page: KVPageSpec
    device_blocks: int
    host_blocks: int
    max_rows: int
    workspace_bytes: int | None = None
    blocks: BlockRoom | None = None
    graphs: "GraphRoom | None" = None
    batched_copies: bool = False
    attention: AttentionBackend = "auto"


@dataclass(frozen=True, slots=True)
class GraphRoom:
    """What graphs of decoding steps may take.

    Attributes:
        max_rows: of a step that is one. max_blocks: of a row.
        limit_s: of recording. limit_bytes: of the device's memory.
        hybrid: some steps are not the accelerator's alone; what it does in them between attentions
            is launched as graphs, too.
    """

    max_rows: int
    max_blocks: int
    limit_s: float
    limit_bytes: int
    hybrid: bool = False


@dataclass(frozen=True, slots=True)
class Assembled:
    """An executor and what it can tell about its device.

    Attributes:
        notes: what could not be had, one line each.
    """

    executor: Executor
    machine: Machine
    measures: DeviceMeasures
    notes: tuple[str, ...] = ()


def build_machine(
    model: Model,
    sizes: MachineSizes,
    upload: Callable[[torch.Tensor], torch.Tensor],
    pin: Callable[[torch.Tensor], Callable[[], None]] | None = None,
    *,
    host_only: bool = False,
) -> Machine:
    """Allocate pages, buffers and the slot table on the model's device.

    Args:
        pin: makes the host's pages known to the device, see `KVStore`.
    """
    device, page = model.device, sizes.page
    kv = KVStore(
        page,
        {Tier.DEVICE: sizes.device_blocks, Tier.HOST: sizes.host_blocks},
        {Tier.DEVICE: device, Tier.HOST: torch.device("cpu")},
        pin=pin,
        spare=frozenset() if sizes.graphs is None else frozenset({Tier.DEVICE}),
    )
    arena = Arena(sizes.workspace_bytes)
    buffers = BufferSpace(arena)
    slots = torch.zeros(sizes.max_rows, dtype=torch.int64, device=device)
    pool = model.pool
    kernels = choose_kernels(
        model.spec, page, device, model.dtype, host_only=host_only, pool=pool,
        attention=sizes.attention,
    )  # fmt: skip
    passing = None
    if sizes.blocks is not None:
        passing = PassingMemory(
            sizes.blocks,
            page,
            _slot_kernels(model, page, kernels),
            model.spec.hidden_size,
            model.dtype,
            device,
            pin,
        )
    runner = OpRunner(model, kv, buffers, slots, upload, kernels, passing)
    # what blocks of batches take of the host's memory is planned to the byte, without rounding up
    pins = device.type == "cuda" and sizes.blocks is None
    pinned = partial(pinned_bytes, node=device_node(device)) if pins else None
    staging = StagingShape.of(model.spec, model.dtype, pinned)
    slot_kernels = None if passing is None else passing.kernels
    contexts = ContextCache(device, kernels, model.spec.layer_windows, staging, slot_kernels)
    op_bytes = OpMemory(StepMemory(model.spec, spec_dtype(model.dtype)), buffers, device.type)
    machine = Machine(device, runner, kv, buffers, arena, slots, contexts, op_bytes=op_bytes)
    machine.host_tasks = host_tasks(machine)
    return machine


def _slot_kernels(
    model: Model, page: KVPageSpec, kernels: Mapping[Tier, TierKernels]
) -> TierKernels:
    """What the accelerator attends with to pages of the host's type."""
    if not page.converts:
        return kernels[Tier.DEVICE]
    return device_kernels(model.spec, page_shape(page.on(Tier.HOST)), model.device, model.dtype)


def host_tasks(machine: Machine) -> "HostTasks | None":
    """What makes the CPU queue's operations native tasks, if the host tier's kernels can."""
    kernels = machine.runner.kernels[Tier.HOST]
    if isinstance(kernels, ReferenceKernels):
        return None
    from tandem.kernels.compiled_kernels import CompiledKernels
    from tandem.runtime.host_tasks import HostTasks

    assert isinstance(kernels, CompiledKernels)
    return HostTasks(kernels, machine.kv, machine.buffers)


def on_host(
    model: Model,
    sizes: MachineSizes,
    *,
    threads: bool = False,
    listeners: "Sequence[OpListener]" = (),
) -> Assembled:
    """No accelerator: programs run on the caller's thread, or on a thread per queue (tests).

    Args:
        listeners: told of every operation that has ended.
    """
    machine = build_machine(model, sizes, _stay, host_only=True)
    measures = HostMeasures(machine)
    if not threads:
        executor = InlineExecutor(machine, layer_runner(model, machine), listeners)
        return Assembled(executor, machine, measures)
    from tandem.runtime.threaded import HostDriver, ThreadedExecutor

    threaded = ThreadedExecutor(machine, listeners)
    threaded.start(HostDriver(threaded))
    return Assembled(threaded, machine, measures)


def layer_runner(model: Model, machine: Machine) -> "LayerRunner | None":
    """What executes whole layers at once, if both stages and attention are compiled."""
    if model.native is None:
        return None
    from tandem.kernels.compiled_kernels import CompiledKernels
    from tandem.runtime.layer_runner import LayerRunner

    if not isinstance(machine.runner.kernels[Tier.DEVICE], CompiledKernels):
        return None
    return LayerRunner(model.native, machine.kv, machine.buffers, machine.arena)


def record_graphs(
    machine: Machine, model: Model, room: GraphRoom, block_size: int, maker: "GraphMaker"
) -> None:
    """Have the machine launch decodes on the accelerator as graphs, where they can be recorded, and
    the parts of hybrid steps with what is left of time and memory.

    Nothing may be in flight. What came of it, `graphs` and `layer_graphs` of the runner say.
    """
    # Imported where there are graphs: a first token waits for what is imported.
    from tandem.plan.decode_sweep import row_buckets
    from tandem.runtime.decode_graphs import DecodeGraphs, DecodeSizes

    if machine.device.type == "cpu":  # emulated: a GPU's kernels do not ask what was chosen
        model.hold_experts_still(room.max_rows)
    runner, kernels = machine.runner, machine.runner.kernels[Tier.DEVICE]
    assert isinstance(kernels, StaticKernels)
    spare = machine.kv.spare_block(Tier.DEVICE)
    sizes = DecodeSizes(
        row_buckets(room.max_rows), room.max_blocks, spare, block_size, model.spec.layer_windows
    )
    graphs = DecodeGraphs(runner.run, machine.buffers, kernels, sizes, machine.device, maker)
    runner.graphs = graphs
    graphs.record(room.limit_s, room.limit_bytes)
    machine.contexts.graphs = graphs
    if room.hybrid and graphs.buckets:
        from tandem.runtime.layer_graphs import LayerGraphs

        runner.layer_graphs = LayerGraphs(model, machine.buffers, sizes.buckets, maker)
        left_s = max(0.0, room.limit_s - graphs.recording.seconds)
        runner.layer_graphs.record(left_s, room.limit_bytes)


def on_exact_emulator(
    model: Model, sizes: MachineSizes, seed: int, listeners: "Sequence[OpListener]" = ()
) -> Assembled:
    """The emulated accelerator in exact mode."""
    machine = build_machine(model, sizes, _stay)
    if sizes.graphs is not None:
        from tandem.runtime.graph_maker import EmulatedGraphs

        record_graphs(machine, model, sizes.graphs, sizes.page.block_size, EmulatedGraphs())
    measures = EmulatedMeasures(machine, model, f"emulated accelerator (exact, seed {seed})")
    return Assembled(ExactExecutor(machine, seed, listeners), machine, measures)


def on_cuda(model: Model, sizes: MachineSizes, listeners: "Sequence[OpListener]" = ()) -> Assembled:
    """A CUDA device: streams and events, one launching thread per queue."""
    from tandem.runtime.overlap_meter import OverlapMeter
    from tandem.runtime.threaded import ThreadedExecutor
    from tandem.runtime.timelines import make_timelines

    uploads: list[Callable[[torch.Tensor], torch.Tensor]] = []
    machine = build_machine(model, sizes, lambda tensor: uploads[0](tensor), pin)
    if sizes.batched_copies:
        machine.runner.batches = _batch_copies()
    if sizes.graphs is not None:
        maker = CudaGraphs(model.device)
        record_graphs(machine, model, sizes.graphs, sizes.page.block_size, maker)
    memory = CudaMemory(model.device)
    meter = OverlapMeter()
    counters, notes = _stream_counters(machine, sizes)
    timelines = make_timelines(None if counters is None else counters.addresses)
    executor = ThreadedExecutor(machine, (meter.executed, *listeners), timelines)
    driver: CudaDriver[Running] = CudaDriver(
        model.device, executor.completed, executor.failed, timelines, counters
    )
    uploads.append(driver.upload)
    executor.start(driver)
    measures = CudaMeasures(memory, machine, meter)
    return Assembled(executor, machine, measures, notes)


def _batch_copies() -> "BatchCopies":
    from tandem.devices.batch_copies import BatchCopies, NoBatchCopiesError

    try:
        return BatchCopies()
    except NoBatchCopiesError as error:
        raise ConfigError(
            f"--link-copies batched cannot be: {error}; leave it out", param="link_copies"
        ) from None


def _stream_counters(
    machine: Machine, sizes: MachineSizes
) -> tuple["StreamCounters | None", tuple[str, ...]]:
    """What copies to the host tell native threads by that their work can begin; a note if there
    should be such, but are not.
    """
    if machine.host_tasks is None or not sizes.host_blocks:
        return None, ()
    from tandem.devices.stream_counters import NoStreamCountersError

    try:
        return open_stream_counters(machine.device, (Queue.D2H,)), ()
    except NoStreamCountersError as error:
        told = f"the CPU's part of a layer begins when a thread has seen its input come: {error}"
        return None, (told,)


class HostMeasures:
    """The operating system's word on this process."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._threads = torch.get_num_threads()

    @property
    def description(self) -> str:
        """Threads in use."""
        return f"none (host, {self._threads} threads)"

    def peak_bytes(self) -> int:
        """Highest resident set."""
        return read_host_memory().peak_rss_bytes

    def workspace_bytes(self) -> int:
        """The arena's peak."""
        return self._machine.arena.peak_bytes

    def staging_bytes(self) -> int:
        """Host buffers' peak."""
        return self._machine.buffers.staging_peak_bytes

    @property
    def overlap(self) -> None:
        """There is no accelerator."""


class EmulatedMeasures:
    """The emulated accelerator's own count: weights, pages, slot table, and the arena's peak."""

    def __init__(self, machine: Machine, model: Model, name: str) -> None:
        self._machine = machine
        self._fixed = model.weights.resident_bytes + machine.kv.size_bytes(Tier.DEVICE)
        self._fixed += machine.slots.nbytes
        if machine.runner.blocks is not None:
            self._fixed += machine.runner.blocks.passing.device_bytes
        self._name = name

    @property
    def description(self) -> str:
        """Mode and memory in use."""
        return f"{self._name}, {format_size(self._fixed)} of weights and KV pages"

    def peak_bytes(self) -> int:
        """Fixed allocations and the most that activations took at once."""
        return self._fixed + self._machine.arena.peak_bytes

    def workspace_bytes(self) -> int:
        """The arena's peak."""
        return self._machine.arena.peak_bytes

    def staging_bytes(self) -> int:
        """Host buffers' peak."""
        return self._machine.buffers.staging_peak_bytes

    @property
    def overlap(self) -> None:
        """Its times mean nothing."""


class CudaMeasures:
    """The driver's and the allocator's word on a device, and the machine's on its host buffers."""

    def __init__(self, memory: CudaMemory, machine: Machine, overlap: "OverlapMeter") -> None:
        self._memory = memory
        self._machine = machine
        self._overlap = overlap

    @property
    def description(self) -> str:
        """Name, compute capability and memory."""
        return self._memory.description

    def peak_bytes(self) -> int:
        """Most that the driver had given out, to other processes too."""
        return self._memory.driver_peak_bytes()

    def workspace_bytes(self) -> int:
        """The allocator's peak beside weights, pages and slot table."""
        return self._memory.grown_bytes()

    def staging_bytes(self) -> int:
        """Host buffers' peak."""
        return self._machine.buffers.staging_peak_bytes

    @property
    def overlap(self) -> "OverlapMeter":
        """By events' times."""
        return self._overlap


def _stay(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
