"""Have decodes, and parts of other steps, recorded as graphs."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tandem.kernels.tier_kernels import StaticKernels
from tandem.models.model import Model
from tandem.runtime.build_machine import GraphRoom
from tandem.runtime.machine import Machine
from tandem.spec.tier import Tier

if TYPE_CHECKING:
    from tandem.runtime.graph_maker import GraphMaker
    from tandem.runtime.host_link import HostLink
    from tandem.runtime.recording import Recording
    from tandem.runtime.step_graphs import DecodeSizes


def record_graphs(
    machine: Machine,
    model: Model,
    room: GraphRoom,
    block_size: int,
    maker: "GraphMaker",
    open_link: "Callable[[int], HostLink] | None" = None,
) -> None:
    """Have the machine launch decodes on the accelerator as graphs, where they can be recorded,
    then those of which the host has a part, and the parts of other steps with what is left of time
    and memory.

    Nothing may be in flight. What came of it, `graphs`, `hybrid` and `layer_graphs` of the runner
    say.

    Args:
        open_link: by which graphs and the CPU's threads hand so many rows to each other; None:
            they cannot.
    """
    if machine.device.type == "cpu":  # emulated: a GPU's kernels do not ask what was chosen
        model.hold_experts_still(room.max_rows)
    left_s = room.limit_s
    if room.whole:
        made = _record_decodes(machine, model, room, block_size, maker)
        if machine.contexts.graphs is None:
            return  # nor could layers be
        left_s = max(0.0, left_s - made.seconds)
        if room.parts and open_link is not None and _may_be_one(machine):
            made = _record_hybrid(machine, model, room, block_size, maker, open_link, left_s)
            left_s = max(0.0, left_s - made.seconds)
    if room.parts:
        _record_layers(machine, model, room, maker, left_s)


def _record_decodes(
    machine: Machine, model: Model, room: GraphRoom, block_size: int, maker: "GraphMaker"
) -> "Recording":
    # Imported where there are graphs: a first token waits for what is imported.
    from tandem.runtime.decode_graphs import DecodeGraphs

    runner, kernels = machine.runner, machine.runner.kernels[Tier.DEVICE]
    assert isinstance(kernels, StaticKernels)
    sizes = _sizes(machine, model, room, block_size)
    graphs = DecodeGraphs(runner.run, machine.buffers, kernels, sizes, machine.device, maker)
    runner.graphs = graphs
    graphs.record(room.limit_s, room.limit_bytes)
    if graphs.buckets:
        machine.contexts.graphs = graphs
    return graphs.recording


def _sizes(machine: Machine, model: Model, room: GraphRoom, block_size: int) -> "DecodeSizes":
    from tandem.plan.decode_sweep import row_buckets
    from tandem.runtime.step_graphs import DecodeSizes

    spare, windows = machine.kv.spare_block(Tier.DEVICE), model.spec.layer_windows
    return DecodeSizes(row_buckets(room.max_rows), room.max_blocks, spare, block_size, windows)


def _may_be_one(machine: Machine) -> bool:
    """Whether the host's part runs by itself, and the accelerator's kernels take both parts."""
    from tandem.kernels.tier_kernels import MergingKernels

    return machine.host_tasks is not None and isinstance(
        machine.runner.kernels[Tier.DEVICE], MergingKernels
    )


def _record_hybrid(
    machine: Machine,
    model: Model,
    room: GraphRoom,
    block_size: int,
    maker: "GraphMaker",
    open_link: "Callable[[int], HostLink]",
    limit_s: float,
) -> "Recording":
    from tandem.runtime.hybrid_graphs import HybridGraphs

    sizes = _sizes(machine, model, room, block_size)
    link = open_link(max(sizes.buckets))
    kernels = machine.runner.kernels
    graphs = HybridGraphs(model, machine.kv, machine.slots, kernels, sizes, link, maker)
    machine.runner.hybrid = graphs
    graphs.record(limit_s, room.limit_bytes)
    if graphs.buckets:
        assert machine.host_tasks is not None
        machine.host_tasks.link = link
        machine.contexts.hybrid = graphs
    return graphs.recording


def _record_layers(
    machine: Machine, model: Model, room: GraphRoom, maker: "GraphMaker", limit_s: float
) -> None:
    from tandem.plan.decode_sweep import row_buckets
    from tandem.runtime.layer_graphs import LayerGraphs

    buckets = row_buckets(room.max_rows)
    graphs = LayerGraphs(model, machine.buffers, room.parts, buckets, maker)
    machine.runner.layer_graphs = graphs
    graphs.record(limit_s, room.limit_bytes)
