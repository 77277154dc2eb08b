"""Allocate what programs run on: pages, buffers, slots, and the maths over them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch

from tandem.devices.cuda.device import device_node
from tandem.devices.cuda.memory import pinned_bytes
from tandem.kernels.tier_kernels import ReferenceKernels, TierKernels
from tandem.memory.page import KVPageSpec
from tandem.memory.workspace import StepMemory
from tandem.models.model import Model
from tandem.models.weights import spec_dtype
from tandem.plan.block_room import BlockRoom
from tandem.runtime.arena import Arena
from tandem.runtime.buffers import BufferSpace
from tandem.runtime.choose_kernels import choose_kernels, device_kernels, page_shape
from tandem.runtime.kv_store import KVStore
from tandem.runtime.machine import Machine
from tandem.runtime.op_memory import OpMemory
from tandem.runtime.op_runner import OpRunner
from tandem.runtime.passing_memory import PassingMemory
from tandem.runtime.program_context import ContextCache
from tandem.runtime.staging import StagingShape
from tandem.spec.config import AttentionBackend
from tandem.spec.tier import Tier

if TYPE_CHECKING:
    from tandem.plan.layer_launches import LayerPart
    from tandem.runtime.host_tasks import HostTasks
    from tandem.runtime.layer_runner import LayerRunner


@dataclass(frozen=True, slots=True)
class MachineSizes:
    """How much of everything to allocate.

    Attributes:
        workspace_bytes: bound on device activations; None counts without refusing.
        blocks: of an offline plan, what passes through the accelerator; None: programs are sweeps.
        graphs: sweeps that only decode are launched as one, if that can be; None: they are not.
        attention: what attends to prompts on a GPU.
        batched_copies: KV blocks cross a GPU's link by one call of the driver for all of a move.
        stream_waits: a GPU's copies wait by themselves for what the CPU attends to.
    """

    page: KVPageSpec
    device_blocks: int
    host_blocks: int
    max_rows: int
    workspace_bytes: int | None = None
    blocks: BlockRoom | None = None
    graphs: "GraphRoom | None" = None
    batched_copies: bool = False
    stream_waits: bool = False
    attention: AttentionBackend = "auto"


@dataclass(frozen=True, slots=True)
class GraphRoom:
    """What graphs are to be of, and what they may take.

    Attributes:
        max_rows: of a step that is one. max_blocks: of a row.
        limit_s: of recording. limit_bytes: of the device's memory.
        whole: of steps that only decode on the accelerator; it has all layers.
        parts: of layers of other steps: what the accelerator does in them between attentions.
    """

    max_rows: int
    max_blocks: int
    limit_s: float
    limit_bytes: int
    whole: bool = True
    parts: "tuple[LayerPart, ...]" = ()


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
        pinned_blocks=None if sizes.blocks is None else sizes.blocks.pinned_blocks,
        spare=frozenset({Tier.DEVICE} if sizes.graphs and sizes.graphs.whole else ()),
    )
    arena = Arena(sizes.workspace_bytes)
    buffers = BufferSpace(arena)
    slots = torch.zeros(sizes.max_rows, dtype=torch.int64, device=device)
    pool = model.pool
    kernels = choose_kernels(
        model.spec, page, device, model.dtype, host_only=host_only, pool=pool,
        attention=sizes.attention,
    )  # fmt: skip
    staged = staged_kernels(model, page, kernels)
    passing = None
    if sizes.blocks is not None:
        passing = PassingMemory(
            sizes.blocks,
            page,
            staged,
            model.spec.hidden_size,
            model.dtype,
            device,
            pin,
        )
    # what blocks of batches take of the host's memory is planned to the byte, without rounding up
    pins = device.type == "cuda" and sizes.blocks is None
    pinned = partial(pinned_bytes, node=device_node(device)) if pins else None
    runner = OpRunner(model, kv, buffers, slots, upload, kernels, passing, staged, pinned)
    staging = StagingShape.of(model.spec, model.dtype, pinned)
    slot_kernels = None if passing is None else passing.kernels
    contexts = ContextCache(device, kernels, model.spec.layer_windows, staging, slot_kernels)
    op_bytes = OpMemory(StepMemory(model.spec, spec_dtype(model.dtype)), buffers, device.type)
    machine = Machine(device, runner, kv, buffers, arena, slots, contexts, op_bytes=op_bytes)
    machine.host_tasks = host_tasks(machine)
    return machine


def staged_kernels(
    model: Model, page: KVPageSpec, kernels: Mapping[Tier, TierKernels]
) -> TierKernels:
    """The accelerator's, for pages of the host's type."""
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


def layer_runner(model: Model, machine: Machine) -> "LayerRunner | None":
    """What executes whole layers at once, if both stages and attention are compiled."""
    if model.native is None:
        return None
    from tandem.kernels.compiled_kernels import CompiledKernels
    from tandem.runtime.layer_runner import LayerRunner

    if not isinstance(machine.runner.kernels[Tier.DEVICE], CompiledKernels):
        return None
    return LayerRunner(model.native, machine.kv, machine.buffers, machine.arena)
