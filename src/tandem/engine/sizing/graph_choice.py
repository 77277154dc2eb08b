"""Whether decoding steps are launched as graphs, and what they are given of memory. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tandem.engine.sizing.capacities import Capacities
from tandem.memory.page import KVPageSpec
from tandem.memory.workspace import StepMemory
from tandem.plan.decode_sweep import MAX_BUCKET_ROWS, row_buckets
from tandem.plan.layer_launches import LayerPart, can_record, resident_parts
from tandem.plan.weights import WeightPlacement, homes_by_layer
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision
from tandem.spec.units import KIB, MIB, format_size

if TYPE_CHECKING:
    from tandem.engine.sizing.memory_plan import MemoryPlan
    from tandem.runtime.decode_graphs import DecodeGraphs
    from tandem.runtime.hybrid_graphs import HybridGraphs
    from tandem.runtime.layer_graphs import LayerGraphs

LABEL = "CUDA graphs"
RECORDING_LIMIT_S = 20.0
_DRIVER_BYTES = (32 + 20 + 2 + 10) * MIB
"""Beside graphs themselves, in MiB: cuBLAS' workspace of the stream that they are recorded on (32
on Hopper and later, 8 before: torch's `getChosenWorkspaceSize`), a started segment of torch's large
blocks and one of its small ones, code that is loaded meanwhile. Recording ends where all takes more
than is set aside."""
_LAYER_GRAPH_BYTES = 128 * KIB
"""The driver's objects, of a graph of a layer or of a layer in a whole step's: not measured yet."""
_DECODED = "decoding of which the host has a part"
_NONE_STAYS = "no layer's weights stay on the accelerator behind another that is computed there"
_STAYING = "layers that stay on the accelerator, beside those that are elsewhere, are"
_ROW_BYTES, _TABLE_BYTES = 5 * 8 + 9, 4  # of a row, its likeliest token too; of one of its blocks


@dataclass(frozen=True, slots=True)
class GraphChoice:
    """Graphs to record.

    Attributes:
        max_rows: of a step that is one. max_blocks: of a row.
        size_bytes: of accelerator memory.
        whole: steps that only decode on the accelerator, which has all layers.
        parts: of layers there, in steps of which others have a part.
    """

    max_rows: int
    max_blocks: int
    size_bytes: int
    whole: bool
    parts: tuple[LayerPart, ...] = ()


def with_graphs(
    config: EngineConfig,
    spec: ModelSpec,
    capacities: Capacities,
    plan: Callable[[bool], "MemoryPlan"],
) -> "MemoryPlan":
    """The memory plan with graphs if it has room for them; else, unless they are asked for, one
    without, which says so.

    Args:
        plan: makes one, with graphs or without.

    Raises:
        ConfigError: they are asked for and cannot be, or there is no plan at all.
    """
    if capacities.device_location == "host":
        raise ConfigError(
            "--cuda-graphs on has no meaning without an accelerator; leave it out, or use "
            "--accelerator cuda",
            param="cuda_graphs",
        )
    reason, without = reason_against_graphs(config, spec, capacities), None
    if reason is None:
        try:
            memory = plan(True)
        except ConfigError:  # also of a plan that has given the memory away
            if config.cuda_graphs == "on":
                raise
            reason = "there is no room for them"
        else:
            if memory.graphs is not None and (memory.graphs.whole or config.cuda_graphs == "on"):
                return memory
            reason = _NONE_STAYS
            if memory.graphs is not None:
                without = plan(False)
                if without.plan.weights == memory.plan.weights:
                    return memory
                reason = "weights would have to leave the accelerator for graphs"
    if config.cuda_graphs == "on":
        raise ConfigError(
            f"--cuda-graphs on cannot be: {reason}; leave it out", param="cuda_graphs"
        )
    memory = without or plan(False)
    notes = (*memory.plan.notes, f"steps are launched one operation at a time: {reason}")
    return replace(memory, plan=replace(memory.plan, notes=notes))


def reason_against_graphs(
    config: EngineConfig, spec: ModelSpec, capacities: Capacities
) -> str | None:
    """What keeps a model's steps from being recorded; None: nothing that is known beforehand."""
    if spec.experts is None:
        return None
    if config.save_expert_hits is not None:
        return "--save-expert-hits counts tokens, which a graph cannot tell from rows that pad it"
    if not capacities.experts_at_once:
        return "without Triton a mixture's steps ask the host which experts were chosen"
    return None


def choose_graphs(
    config: EngineConfig,
    spec: ModelSpec,
    precision: Precision,
    page: KVPageSpec,
    capacities: Capacities,
    max_tokens: int,
    placement: Iterable[WeightPlacement] = (),
    *,
    hybrid: bool,
) -> GraphChoice | None:
    """Graphs of as many rows as may decode at once; None: nothing can be one.

    Args:
        max_tokens: of a row.
        placement: of layers that may not be resident.
        hybrid: the host may attend to keys in steps.
    """
    homes = homes_by_layer(placement)
    whole = all(home == "resident" for home in homes.values())
    parts = resident_parts(homes, spec.num_layers) if hybrid or not whole else ()
    if not whole and not can_record(parts):
        return None
    rows = min(config.max_num_seqs, MAX_BUCKET_ROWS)
    blocks = page.blocks_for_tokens(max_tokens)
    memory = StepMemory(spec, precision.activations)
    size = memory.decode_bytes(rows)
    if whole:
        size += rows * (_ROW_BYTES + blocks * _TABLE_BYTES)
        size += page.bytes_per_block  # the spare block, which rows write to that pad a step
    if parts:
        size += memory.between_bytes(rows)
    if capacities.real:
        # for each number of rows: of steps of the accelerator's alone, with the host, and layers
        whole_steps = (1 + hybrid) if whole else 0
        graphs = whole_steps * spec.num_layers + len(parts)
        size += _DRIVER_BYTES + graphs * len(row_buckets(rows)) * _LAYER_GRAPH_BYTES
    return GraphChoice(rows, blocks, size, whole, parts)


def charged(graphs: GraphChoice | None) -> dict[str, int]:
    """What graphs take of the accelerator's memory, by its label."""
    return {LABEL: 0 if graphs is None else graphs.size_bytes}


def recorded_notes(
    config: EngineConfig,
    graphs: "DecodeGraphs | None",
    layers: "LayerGraphs | None",
    hybrid: "HybridGraphs | None" = None,
) -> tuple[str, ...]:
    """What came of recording, a line for each kind of steps.

    Args:
        graphs: of whole steps. layers: of others' layers. hybrid: of whole steps of which the host
            has a part. None: they were not to be.

    Raises:
        ConfigError: nothing, though graphs are asked for.
    """
    first = graphs or layers
    if first is None:
        return ()
    if not first.buckets:
        problem = first.recording.problem
        if config.cuda_graphs == "on":
            raise ConfigError(
                f"--cuda-graphs on cannot be: {problem}; leave it out", param="cuda_graphs"
            )
        return (f"steps are launched one operation at a time: {problem}",)
    if graphs is None:
        assert layers is not None
        return (_recorded(_STAYING, "tokens", layers, layers.recording.taken_bytes),)
    told = [_recorded("steps that only decode are", "rows", graphs, graphs.recording.taken_bytes)]
    before = graphs.recording.taken_bytes
    for made, what, else_, unit in (
        (hybrid, _DECODED, "is launched layer by layer", "rows"),
        (layers, "layers of hybrid steps", "are launched as operations", "tokens"),
    ):
        if made is None:
            continue
        if not made.buckets:
            told.append(f"{what} {else_}: {made.recording.problem}")
            continue
        taken = made.recording.taken_bytes
        is_are = "is by" if made is hybrid else "are"
        mine = None if taken is None else taken - (before or 0)
        told.append(_recorded(f"{what} {is_are}", unit, made, mine))
        before = taken
    return tuple(told)


def _recorded(
    what: str,
    unit: str,
    graphs: "DecodeGraphs | HybridGraphs | LayerGraphs",
    taken: int | None,
) -> str:
    memory = "" if taken is None else f", {format_size(taken)}"
    sizes = ", ".join(str(bucket) for bucket in graphs.buckets)
    if graphs.buckets == (1,):
        unit = unit.removesuffix("s")
    made = graphs.recording
    missing = "" if made.problem is None else f"; no more, because {made.problem}"
    return f"{what} graphs of {sizes} {unit}, recorded in {made.seconds:.1f} s{memory}{missing}"
