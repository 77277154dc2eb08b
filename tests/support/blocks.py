"""Engines that execute small offline plans, on any executor, every step checked."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from tests.support.engines import NoMeasures

from tandem.engine.block_core import BlockCore
from tandem.engine.block_stats import BlockCounts, BlockStats
from tandem.kernels.open_pool import open_pool
from tandem.memory.ledger import MemoryLedger
from tandem.memory.page import KVPageSpec
from tandem.models.disk_weights import DiskPlacement
from tandem.models.load import load_model
from tandem.models.model import Model
from tandem.plan.block_room import BlockRoom
from tandem.plan.offline import OfflinePlan, TierBudget
from tandem.plan.weights import Home, as_runs
from tandem.runtime.build_machine import MachineSizes, build_machine
from tandem.runtime.exact import ExactExecutor
from tandem.runtime.executor import Executor
from tandem.runtime.inline import InlineExecutor
from tandem.runtime.machine import Machine
from tandem.runtime.threaded import HostDriver, ThreadedExecutor
from tandem.scheduler.blocks.block_scheduler import BlockScheduler
from tandem.scheduler.config import SchedulerConfig
from tandem.spec.kv_type import parse_kv_type
from tandem.spec.precision import Precision

ExecutorKind = Literal["inline", "exact", "threaded"]
_AMPLE = TierBudget(1 << 30, 1 << 20, 1 << 20, 1 << 20, 1 << 20)


def small_plan(homes: tuple[Home, ...], *, row_blocks: int = 10, **changes: Any) -> OfflinePlan:
    """A plan whose memory nobody counts.

    Args:
        row_blocks: of each sequence, wherever they are.
    """
    settings: dict[str, Any] = {
        "weights": as_runs(homes),
        "batches": 2,
        "resident_rows": 0,
        "streamed_rows": 0,
        "cpu_rows": 0,
        "kv_dtype": "float32",
        "host_kv_dtype": "float32",
        "block_size": 16,
        "max_model_len": 200,
        "prefill_tokens": 128,
        "accelerator": _AMPLE,
        "host": _AMPLE,
    }
    settings |= changes
    hosted, made = settings["streamed_rows"], settings.get("recomputed_tokens", 0)
    size, batches = settings["block_size"], settings["batches"]
    passing = hosted * (row_blocks - made // size)
    passes = max(settings["prefill_tokens"], settings["max_model_len"] - 1)
    return OfflinePlan(
        device_blocks=batches * settings["resident_rows"] * row_blocks,
        host_blocks=batches * (passing + settings["cpu_rows"] * row_blocks),
        slot_blocks=max(passing, -(-passes // size)) if hosted + settings["cpu_rows"] else 0,
        **settings,
    )


def loaded(
    directory: Path, plan: OfflinePlan, *copies: Path, precision: Precision | None = None
) -> Model:
    """The model in a folder, its weights where the plan has them, those on disk in copies, too.

    Args:
        precision: None: as it is stored.
    """
    layers = plan.layers
    return load_model(
        directory,
        precision,
        resident_quantized=plan.quantized_layers != "streamed",
        pool=open_pool(),
        layers=layers,
        disk=DiskPlacement(layers.usual.on_disk, "direct", (directory / "spool",), copies),
    )


@contextmanager
def block_engine(
    model: Model, plan: OfflinePlan, kind: ExecutorKind = "inline", seed: int = 0
) -> Iterator[BlockCore]:
    """An engine over a real model's maths; closed at the end."""
    with block_engine_with_scheduler(model, plan, kind, seed) as (core, _):
        yield core


@contextmanager
def block_engine_with_scheduler(
    model: Model, plan: OfflinePlan, kind: ExecutorKind, seed: int
) -> Iterator[tuple[BlockCore, BlockScheduler]]:
    """The same, and its scheduler."""
    core = block_core(model, plan, kind, seed)
    try:
        yield core, core.scheduler
    finally:
        core.close()


def block_core(
    model: Model,
    plan: OfflinePlan,
    kind: ExecutorKind,
    seed: int,
    counts: BlockCounts | None = None,
) -> BlockCore:
    """The same, which the caller closes."""
    spec = model.spec
    config = SchedulerConfig(spec.num_layers, plan.max_model_len, plan.block_size)
    scheduler = BlockScheduler(plan, config, vocab_size=spec.vocab_size, eos_ids=spec.eos_token_ids)
    kept = parse_kv_type(plan.kv_dtype, "kv_dtype")
    differ = plan.host_kv_dtype != plan.kv_dtype
    host_dtype = parse_kv_type(plan.host_kv_dtype, "host_kv_dtype") if differ else None
    page = KVPageSpec.of_model(spec, dtype=kept, block_size=plan.block_size, host_dtype=host_dtype)
    room = BlockRoom.of(plan)
    model.weights.prepare()
    sizes = MachineSizes(page, room.device_blocks, room.host_blocks, plan.block_rows, None, room)
    machine = build_machine(model, sizes, _stay)
    stats = BlockStats(
        scheduler,
        page,
        MemoryLedger({}),
        NoMeasures(),
        "float32",
        plan.max_model_len,
        counts=counts,
    )
    return BlockCore(
        scheduler, _executor(machine, kind, seed), stats, check=True, release=machine.free
    )


def _executor(machine: Machine, kind: ExecutorKind, seed: int) -> Executor:
    if kind == "inline":
        return InlineExecutor(machine)
    if kind == "exact":
        return ExactExecutor(machine, seed)
    executor = ThreadedExecutor(machine)
    executor.start(HostDriver(executor))
    return executor


def _stay(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
