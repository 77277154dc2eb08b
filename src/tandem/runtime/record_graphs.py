"""Have decodes, and parts of other steps, recorded as graphs."""

from typing import TYPE_CHECKING

from tandem.kernels.tier_kernels import StaticKernels
from tandem.models.model import Model
from tandem.runtime.build_machine import GraphRoom
from tandem.runtime.machine import Machine
from tandem.spec.tier import Tier

if TYPE_CHECKING:
    from tandem.runtime.graph_maker import GraphMaker


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
