"""A block's pass as operations and how often there are: so much is the same for all candidates
that differ in numbers of sequences only.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from tandem.plan.block_shape import BlockShape
from tandem.plan.program import Part, ProgramOp, Queue
from tandem.plan.sweep_layers import SweepLayers
from tandem.plan.weights import StreamedLayers
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.work import (
    COLUMNS_CHAIN,
    CPU_CHAIN,
    CPU_LAYER,
    CUT_CHAIN,
    ENDS,
    LOAD,
    LOAD_COLUMNS,
    LOAD_CPU_COLUMNS,
    LOAD_MLP,
    MLP_CHAIN,
    READ,
    OnCpu,
    OpClass,
    by_layer,
    decode_work,
    operation,
    prefill_work,
)
from tandem.spec.model import ModelSpec

QUEUES = tuple(Queue)
"""In the order in which sums are kept."""
_CHAINS = frozenset((*CPU_CHAIN, *MLP_CHAIN, *COLUMNS_CHAIN, *CPU_LAYER))
_CUT = frozenset((*CPU_CHAIN, *CUT_CHAIN))
_TO_LINK = (Queue.H2D, Queue.WEIGHTS)


class PassTerm(NamedTuple):
    """An operation of a pass.

    Attributes:
        queue: its number in `QUEUES`. to_link: whether it brings bytes to the accelerator.
        times: how often it is there. chained: of these, those that wait for each other.
            way: those on the way of a batch through its layers and the CPU's attention.
    """

    op: ProgramOp
    queue: int
    to_link: bool
    times: int
    chained: int = 0
    way: int = 0


class _LayerKind(NamedTuple):
    """Layers of the same price: one of them, what of it the CPU computes, and their number."""

    layer: int
    on_cpu: OnCpu
    number: int


class _Layers(NamedTuple):
    """Of a pass: its layers, and those that come, by how they do."""

    kinds: tuple[_LayerKind, ...]
    brought: tuple[tuple[OpClass, int, int], ...] = ()


class PassWork:
    """Of one model's blocks."""

    def __init__(self, model: ModelSpec) -> None:
        self._num_layers, self._windows = model.num_layers, model.layer_windows
        self._weights: dict[tuple[int, int, bool, bool], StreamedLayers] = {}
        self._layers: dict[tuple[object, ...], _Layers] = {}
        self._terms: dict[tuple[object, ...], tuple[PassTerm, ...]] = {}

    def decode(self, candidate: BlockCandidate) -> tuple[PassTerm, ...]:
        """Of a pass that gives every sequence a token."""
        return self._of(candidate, prompts=False)

    def prefill(self, candidate: BlockCandidate) -> tuple[PassTerm, ...]:
        """Of the pass over all prompts, but for the activations' way to the host and back. The
        accelerator computes all of it.
        """
        return self._of(candidate, prompts=True)

    def _of(self, c: BlockCandidate, *, prompts: bool) -> tuple[PassTerm, ...]:
        """Prices tell layers that come from others only where their types differ."""
        lent = 0 if prompts else c.lent
        lie = c.streamed, c.on_disk, c.mlps, c.stays and c.batches > 1
        divides = c.columns > 0, c.attention_maps  # prompts bring what passes left out
        layers = *lie, lent, divides, c.quantized == "streamed", prompts
        kv = c.resident_rows > 0, c.streamed_rows > 0, c.cpu_rows > 0, c.recomputed_tokens > 0
        key = (layers, kv, c.batches)
        if key not in self._terms:
            if layers not in self._layers:
                self._layers[layers] = self._layers_of(c, prompts=prompts)
            self._terms[key] = tuple(self._made(c, self._layers[layers], prompts=prompts))
        return self._terms[key]

    def _made(
        self, candidate: BlockCandidate, layers: _Layers, *, prompts: bool
    ) -> Iterator[PassTerm]:
        batches = candidate.batches
        yield from (_end(found, batches) for found in ENDS)
        bare = replace(candidate, lent=0).with_weights(self._num_layers, StreamedLayers())
        for kind in layers.kinds:
            work = prefill_work(bare) if prompts else decode_work(bare, kind.on_cpu)
            yield from _in_layers(tuple(work), kind, batches)
        for found, layer, count in layers.brought:
            yield _term(found, layer, count)

    def _layers_of(self, candidate: BlockCandidate, *, prompts: bool) -> _Layers:
        shape = self._shape(candidate)
        sweep = shape.over_prompts if prompts else shape.in_passes
        divided = () if prompts else shape.divided
        kinds = self._kinds(candidate, shape, sweep, divided)
        return _Layers(kinds, tuple(_brought(shape, sweep, divided)) if sweep.reloads else ())

    def _kinds(
        self,
        candidate: BlockCandidate,
        shape: BlockShape,
        sweep: SweepLayers,
        divided: tuple[int, ...],
    ) -> tuple[_LayerKind, ...]:
        differ = frozenset(shape.weights.layers if candidate.quantized == "streamed" else ())
        found: list[tuple[int, bool, OnCpu]] = [
            (self._windows[layer], layer in differ, on_cpu)
            for layer, on_cpu in enumerate(by_layer(shape, sweep, divided))
        ]
        layers = {kind: layer for layer, kind in enumerate(found)}
        return tuple(
            _LayerKind(layers[kind], kind[-1], number) for kind, number in Counter(found).items()
        )

    def _shape(self, candidate: BlockCandidate) -> BlockShape:
        c = candidate
        key = c.streamed, c.on_disk, c.mlps, c.stays and c.batches > 1
        weights = self._weights.get(key)
        if weights is None:
            weights = candidate.shape(self._num_layers).weights
            self._weights[key] = weights
        return candidate.with_weights(self._num_layers, weights)


def _brought(
    shape: BlockShape, sweep: SweepLayers, divided: tuple[int, ...]
) -> Iterator[tuple[OpClass, int, int]]:
    """What comes, one of its layers, and of how many."""
    first, apart = shape.weights.layers[0], frozenset(shape.weights.mlps)
    parted = frozenset(divided)
    undivided = [layer for layer in sweep.loaded if layer not in parted]
    mlps = sum(layer in apart for layer in undivided)
    left = frozenset(() if divided else shape.divided)  # by the pass before, which was no prompts'
    completed = sum(layer in left for layer in shape.weights.first)
    counts = {
        LOAD: len(undivided) - mlps,
        LOAD_MLP: mlps,
        LOAD_COLUMNS: len(divided),
        LOAD_CPU_COLUMNS: completed,
        READ: len(shape.weights.on_disk),
    }
    for found, count in counts.items():
        if count:
            yield found, first, count


def _end(found: OpClass, batches: int) -> PassTerm:
    """One batch's wait for each other."""
    return _term(found, 0, batches, chained=int(found[1] is Queue.ACCEL))


def _in_layers(work: tuple[OpClass, ...], kind: _LayerKind, batches: int) -> Iterator[PassTerm]:
    """Where the CPU has a part in a layer, one batch's way waits; else all that the accelerator
    does.
    """
    count, times = kind.number, kind.number * batches
    with_cpu = any(queue is Queue.CPU for _, queue, _ in work)
    chains = _CUT if kind.on_cpu == "cut" else _CHAINS
    for found in work:
        way = count if found in chains or _is_way(found) else 0
        alone = times if found[1] is Queue.ACCEL else 0
        yield _term(found, kind.layer, times, way if with_cpu else alone, way)


def _term(found: OpClass, layer: int, times: int, chained: int = 0, way: int = 0) -> PassTerm:
    queue = found[1]
    number, to_link = QUEUES.index(queue), queue in _TO_LINK
    return PassTerm(operation(found, layer), number, to_link, times, chained, way)


def _is_way(found: OpClass) -> bool:
    """Before and after attention."""
    return found[2] in (Part.PRE, Part.POST)
