"""Engines for tests: a real model's or the toy's, on any executor, every event checked."""

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast

import torch
from tests.support.provenance import ProvenanceRunner
from tests.support.setups import Setup

from tandem.engine.core import EngineCore
from tandem.engine.stats import EngineStats
from tandem.engine.stats_collector import StatsCollector
from tandem.memory.disk_index import DiskIndex
from tandem.memory.ledger import MemoryLedger
from tandem.memory.page import KVPageSpec
from tandem.memory.pool import BlockPool
from tandem.models.disk_weights import DiskPlacement
from tandem.models.dummy_weights import fill_dummy_weights
from tandem.models.host_layers import host_layers
from tandem.models.model import Model
from tandem.models.place_on_disk import open_dummy
from tandem.models.weights import allocate_weights
from tandem.plan.layer_launches import resident_parts
from tandem.plan.online import OnlinePlan
from tandem.plan.sweep_layers import SweepChoice
from tandem.plan.weights import WeightPlacement
from tandem.runtime.arena import Arena
from tandem.runtime.buffers import BufferSpace
from tandem.runtime.build_machine import GraphRoom, host_tasks, layer_runner, staged_kernels
from tandem.runtime.choose_kernels import choose_kernels
from tandem.runtime.exact import ExactExecutor
from tandem.runtime.executor import Executor
from tandem.runtime.graph_maker import EmulatedGraphs
from tandem.runtime.inline import InlineExecutor
from tandem.runtime.kv_store import KVStore
from tandem.runtime.machine import Machine
from tandem.runtime.op_runner import OpRunner
from tandem.runtime.page_file import PageFile
from tandem.runtime.page_worker import PageWorker
from tandem.runtime.program_context import ContextCache
from tandem.runtime.record_graphs import record_graphs
from tandem.runtime.staging import StagingShape
from tandem.runtime.threaded import HostDriver, ThreadedExecutor
from tandem.scheduler.scheduler import Scheduler
from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec, RopeSpec
from tandem.spec.tier import TIERS, Tier

TOY_VOCAB = 50
if TYPE_CHECKING:
    from tandem.runtime.layer_runner import LayerRunner

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class ToyPages:
    """A page of the toy model: one word and one position per slot, any block size."""

    num_layers: int
    block_size: int
    local_kv_heads: int = 1
    head_dim: int = 1
    code_bits: int = 0
    held_in_bytes: bool = False
    converts: bool = False

    def on(self, tier: Tier) -> "ToyPages":
        return self

    @property
    def page_shape(self) -> tuple[int, int, int, int]:
        return (2, 1, self.block_size, 1)

    @property
    def bytes_per_block(self) -> int:
        return self.num_layers * 2 * self.block_size * 8


@dataclass(frozen=True, slots=True)
class TestEngine:
    """A core and what a test may want to look into."""

    __test__ = False

    core: EngineCore
    scheduler: Scheduler
    executor: Executor
    machine: Machine
    disk: PageWorker | None = None

    @property
    def stats(self) -> EngineStats:
        """The engine's own count."""
        return self.core.stats()

    def settle_disk(self) -> None:
        """Until all that can be written is."""
        disk = self.scheduler.disk
        assert disk is not None
        assert self.disk is not None
        self.core.tend()
        while disk.num_writing:
            self.disk.wait()
            self.core.tend()

    def check_idle(self) -> None:
        """Nothing is held, leased, in transfer or in flight, and no row has an owner."""
        assert not self.core.has_work()
        for tier in TIERS:
            self.scheduler.kv.pools[tier].check_idle()
        assert len(self.scheduler.rows.owned()) == 0
        assert not self.scheduler.flight.steps
        assert not self.scheduler.flight.sampling
        assert not self.scheduler.flight.moves
        assert not self.scheduler.flight.late


@contextmanager
def model_engine(model: Model, setup: Setup) -> Iterator[TestEngine]:
    """An engine over a real model's maths; closed at the end."""
    kv = setup.kv or model.spec.dtype
    page = KVPageSpec.of_model(
        model.spec, dtype=kv, block_size=setup.block_size, host_dtype=setup.host_kv
    )
    machine = _machine(model, page, setup)
    machine.host_tasks = host_tasks(machine)
    layers = layer_runner(model, machine) if setup.executor == "host" else None
    spec = model.spec
    with _engine(machine, page, spec.num_layers, spec.vocab_size, setup, layers) as engine:
        yield engine


@contextmanager
def toy_engine(setup: Setup, num_layers: int = 2) -> Iterator[TestEngine]:
    """An engine over the toy model, whose KV slots know their origin; closed at the end."""
    page = cast(KVPageSpec, ToyPages(num_layers, setup.block_size))
    machine = _machine(tiny_model(), page, setup, dict.fromkeys(TIERS, torch.int64))
    runner = ProvenanceRunner(machine.runner, machine.kv, machine.buffers, machine.slots, TOY_VOCAB)
    machine.runner = cast(OpRunner, runner)
    with _engine(machine, page, num_layers, TOY_VOCAB, setup) as engine:
        yield engine


@cache
def tiny_model(
    num_layers: int = 2, vocab_size: int = 64, layers: SweepChoice | None = None
) -> Model:
    """A Llama with dummy weights: hidden 16, two query heads on one key head, float32."""
    spec = ModelSpec(
        "llama", vocab_size, 16, num_layers, 2, 1, 8, 24, 512, rope=RopeSpec(), dtype=DType.FLOAT32
    )
    layers = layers or SweepChoice()
    with TemporaryDirectory() as folder:
        disk = DiskPlacement(layers.usual.on_disk, "cached", (Path(folder),))
        weights = allocate_weights(spec, torch.float32, CPU, layers.usual, disk=disk)
        fill_dummy_weights(weights, spec, 0, None)
        if weights.disk is not None:
            open_dummy(weights.disk, spec, 0)
    weights.prepare()
    apart = layers.mlps_ever_on_cpu
    host = host_layers(spec, weights, layers.ever_on_cpu, torch.float32, None, apart)
    return Model(spec, weights, host=host)


def _machine(
    model: Model,
    page: KVPageSpec,
    setup: Setup,
    dtypes: Mapping[Tier, torch.dtype] | None = None,
) -> Machine:
    blocks = {Tier.DEVICE: setup.device_blocks, Tier.HOST: setup.host_blocks}
    whole = setup.layers.usual.all_resident
    spare = frozenset({Tier.DEVICE} if setup.graphs and whole else set[Tier]())
    kv = KVStore(page, blocks, dict.fromkeys(TIERS, CPU), dtypes=dtypes, spare=spare)
    model.weights.prepare()  # an engine before may have failed
    arena = Arena(setup.workspace_bytes)
    buffers = BufferSpace(arena)
    slots = torch.zeros(setup.max_num_seqs, dtype=torch.int64)
    host_only = setup.executor == "host"
    kernels = choose_kernels(
        model.spec, page, CPU, model.dtype, host_only=host_only, pool=model.pool
    )
    staged = staged_kernels(model, page, kernels)
    runner = OpRunner(model, kv, buffers, slots, lambda tensor: tensor, kernels, staged=staged)
    staging = StagingShape.of(model.spec, model.dtype)
    contexts = ContextCache(CPU, kernels, model.spec.layer_windows, staging)
    machine = Machine(CPU, runner, kv, buffers, arena, slots, contexts)
    if setup.graphs:
        homes = dict(setup.homes)
        room = GraphRoom(
            setup.max_num_seqs,
            page.blocks_for_tokens(setup.max_model_len),
            100.0,
            1 << 40,
            whole,
            resident_parts(homes, model.spec.num_layers) if setup.host_blocks or not whole else (),
        )
        record_graphs(machine, model, room, setup.block_size, EmulatedGraphs())
    return machine


@contextmanager
def _engine(
    machine: Machine,
    page: KVPageSpec,
    num_layers: int,
    vocab_size: int,
    setup: Setup,
    layers: "LayerRunner | None" = None,
) -> Iterator[TestEngine]:
    ticks = itertools.count()
    file = None if setup.disk is None else _page_file(page, setup.disk, setup.disk_bytes)
    scheduler = Scheduler(
        setup.scheduler_config(num_layers),
        setup.make_strategy(),
        {
            Tier.DEVICE: BlockPool(Tier.DEVICE, setup.device_blocks),
            Tier.HOST: BlockPool(Tier.HOST, setup.host_blocks),
        },
        vocab_size=vocab_size,
        eos_ids=setup.eos_ids,
        enable_prefix_caching=setup.prefix_caching,
        publish_moved=not page.converts,
        prices=setup.prices,
        clock=lambda: float(next(ticks)),
        stored=None if file is None else DiskIndex(file.num_slots, file.stored()),
    )
    executor = _executor(machine, setup, layers)
    collector = StatsCollector(
        scheduler, _plan(num_layers, setup), page, MemoryLedger({}), NoMeasures(), "float32"
    )
    disk = None
    if file is not None:
        assert scheduler.disk is not None
        disk = PageWorker(file, machine.kv.bytes_in_host_memory(scheduler.disk.tier))
    core = EngineCore(scheduler, executor, collector, overlap=setup.overlap, check=True, disk=disk)
    try:
        yield TestEngine(core, scheduler, executor, machine, disk)
    finally:
        core.close()


def _page_file(page: KVPageSpec, folder: Path, size_bytes: int) -> PageFile:
    layout = {"model": "under test", "block size": page.block_size}
    return PageFile(folder, layout, page.bytes_per_block, size_bytes)


def _executor(machine: Machine, setup: Setup, layers: "LayerRunner | None") -> Executor:
    if setup.executor == "host":
        return InlineExecutor(machine, layers)
    if setup.executor == "inline":
        return InlineExecutor(machine)
    if setup.executor == "exact":
        return ExactExecutor(machine, setup.executor_seed)
    executor = ThreadedExecutor(machine)
    executor.start(HostDriver(executor))
    return executor


def _plan(num_layers: int, setup: Setup) -> OnlinePlan:
    return OnlinePlan(
        strategy=setup.make_strategy().name,
        weights=(WeightPlacement(0, num_layers - 1),),
        device_blocks=setup.device_blocks,
        host_blocks=setup.host_blocks,
        block_size=setup.block_size,
        max_model_len=setup.max_model_len,
        max_num_seqs=setup.max_num_seqs,
        max_num_batched_tokens=setup.max_num_batched_tokens,
    )


class NoMeasures:
    """A device that tells nothing."""

    description = "under test"

    def peak_bytes(self) -> int:
        return 0

    def workspace_bytes(self) -> None:
        return None

    def staging_bytes(self) -> None:
        return None

    def pinned_bytes(self) -> int:
        return 0

    @property
    def overlap(self) -> None:
        return None
