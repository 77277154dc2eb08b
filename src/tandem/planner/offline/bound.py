"""No pass of a block can be shorter: each resource's work, and what waits for each other.

A batch goes through all layers one after the other. Where the CPU attends, that is at least its way
through them on the accelerator, to the CPU and back, and its own attention there.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tandem.plan.block_shape import BlockShape
from tandem.plan.program import Part, Queue
from tandem.plan.sweep_layers import SweepLayers
from tandem.plan.weights import StreamedLayers
from tandem.planner.demand import Demand
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.prices import BlockPrices, Price
from tandem.planner.offline.work import (
    ALL_ON_CPU,
    CPU_CHAIN,
    CPU_LAYER,
    CPU_MLP,
    ENDS,
    LOAD,
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
from tandem.planner.question import Question

_TO_LINK = (Queue.H2D, Queue.WEIGHTS)


class Busy(NamedTuple):
    """What a pass, or a part of it, asks of each queue, in seconds.

    Attributes:
        link_s: bytes to the accelerator at the link's rate.
        chain_s: of operations that wait for each other.
    """

    by_queue: tuple[float, ...]
    link_s: float
    dram_bytes: float
    chain_s: float = 0.0

    @property
    def accelerator_s(self) -> float:
        """Of its queue."""
        return self.by_queue[_ACCEL]

    @property
    def host_s(self) -> float:
        """Of the CPU's queue, or of a batch's way over it."""
        return max(self.by_queue[_CPU], self.chain_s)

    def plus(self, other: "Busy", times: int = 1) -> "Busy":
        """Both, one after the other; `other` so often."""
        queues = zip(self.by_queue, other.by_queue, strict=True)
        return Busy(
            tuple(one + times * another for one, another in queues),
            self.link_s + times * other.link_s,
            self.dram_bytes + times * other.dram_bytes,
            self.chain_s + times * other.chain_s,
        )


_CHAINS = frozenset((*CPU_CHAIN, *MLP_CHAIN, *CPU_LAYER))
_QUEUES = tuple(Queue)
_Work = Callable[[BlockShape, OnCpu], Iterator[OpClass]]
_ACCEL, _CPU = _QUEUES.index(Queue.ACCEL), _QUEUES.index(Queue.CPU)
_NOTHING = Busy((0.0,) * len(_QUEUES), 0.0, 0.0)


class BlockBound:
    """Bounds for one question."""

    def __init__(self, question: Question, prices: BlockPrices) -> None:
        self._q, self._prices = question, prices
        self._dram_bytes_per_s = question.hardware.host.pool_bytes_per_s
        self._weights: dict[tuple[int, int, bool], StreamedLayers] = {}
        self._decode: dict[BlockCandidate, Busy] = {}
        self._prefill: dict[BlockCandidate, Busy] = {}

    def decode_s(self, candidate: BlockCandidate) -> float:
        """Of a pass that gives every sequence a token."""
        return self._least_s(self.decode_busy(candidate))

    def prefill_s(self, candidate: BlockCandidate) -> float:
        """Of the pass over all prompts."""
        return self._least_s(self.prefill_busy(candidate))

    def decode_busy(self, candidate: BlockCandidate) -> Busy:
        """Work of a pass that gives every sequence a token."""
        if candidate not in self._decode:
            shape = self._shape(candidate)
            price = self._prices.decode(candidate)
            self._decode[candidate] = self._busy(shape, shape.in_passes, price, decode_work)
        return self._decode[candidate]

    def prefill_busy(self, candidate: BlockCandidate) -> Busy:
        """Work of the pass over all prompts, but for the activations' way to the host and back."""
        if candidate not in self._prefill:
            shape = self._shape(candidate)
            price = self._prices.prefill(candidate)
            self._prefill[candidate] = self._busy(shape, shape.over_prompts, price, _prompts_work)
        return self._prefill[candidate]

    def load_s(self, candidate: BlockCandidate) -> float:
        """Of the link, what it takes to bring a layer, or its MLP."""
        load = operation(LOAD_MLP if candidate.mlps else LOAD, self._q.model.num_layers - 1)
        return self._prices.decode(candidate)(load).alone_s

    def lent_s(self, candidate: BlockCandidate) -> tuple[float, float]:
        """Of a pass, what the CPU takes to compute a layer, or its MLP, for all batches, and the
        link to bring it.
        """
        work = (CPU_MLP,) if candidate.mlps else CPU_LAYER
        price = self._prices.decode(candidate)
        computed_s = sum(price(operation(each, 0)).alone_s for each in work)
        load = operation(LOAD_MLP if candidate.mlps else LOAD, 0)
        return candidate.batches * computed_s, price(load).alone_s

    def layer_s(self, candidate: BlockCandidate) -> float:
        """Of a pass, what the link takes to bring a whole layer."""
        return self._prices.decode(candidate)(operation(LOAD, 0)).alone_s

    def way_s(self, candidate: BlockCandidate) -> float:
        """Of a pass that gives every sequence a token, what waits for each other in the layers: one
        batch on the accelerator and on the CPU. Linear in the shares.
        """
        shape, price = self._shape(candidate), self._prices.decode(candidate)
        work = {each: tuple(decode_work(shape, each)) for each in ALL_ON_CPU}
        layers = enumerate(by_layer(shape, shape.in_passes))
        return sum(self._way_s(work[on_cpu], i, price) for i, on_cpu in layers)

    def _way_s(self, work: Iterable[OpClass], layer: int, price: Price) -> float:
        way = [found for found in work if found in _CHAINS or _is_way(found)]
        return sum(self._sum(way, layer, price, 1).by_queue)

    def _shape(self, candidate: BlockCandidate) -> BlockShape:
        key = candidate.streamed, candidate.on_disk, candidate.mlps
        weights = self._weights.get(key)
        if weights is None:
            weights = candidate.shape(self._q.model.num_layers).weights
            self._weights[key] = weights
        return candidate.with_weights(self._q.model.num_layers, weights)

    def _least_s(self, busy: Busy) -> float:
        dram_s = busy.dram_bytes / self._dram_bytes_per_s
        return max(*busy.by_queue, busy.link_s, dram_s, busy.chain_s)

    def _busy(self, shape: BlockShape, sweep: SweepLayers, price: Price, work_of: _Work) -> Busy:
        """Of a whole pass."""
        streamed, windows = frozenset(shape.weights.layers), self._q.model.layer_windows
        on_cpu = by_layer(shape, sweep)
        found = [(windows[i], i in streamed, each) for i, each in enumerate(on_cpu)]
        kinds, layers = Counter(found), {kind: i for i, kind in enumerate(found)}
        work = {each: tuple(work_of(shape, each)) for each in ALL_ON_CPU}
        total = self._sum(ENDS, 0, price, shape.batches)
        total = total._replace(chain_s=total.chain_s / shape.batches)
        for kind, count in kinds.items():
            total = total.plus(self._layer(work[kind[-1]], layers[kind], price, shape), count)
        if sweep.reloads:
            first, apart = shape.weights.layers[0], frozenset(shape.weights.mlps)
            mlps = sum(layer in apart for layer in sweep.loaded)
            whole, read = len(sweep.loaded) - mlps, len(shape.weights.on_disk)
            for found, count in ((LOAD, whole), (LOAD_MLP, mlps), (READ, read)):
                if count:
                    total = total.plus(self._sum([found], first, price, 1), count)
        return total

    def _layer(
        self, work: tuple[OpClass, ...], layer: int, price: Price, shape: BlockShape
    ) -> Busy:
        """All batches in one layer."""
        busy = self._sum(work, layer, price, shape.batches)
        if not any(queue is Queue.CPU for _, queue, _ in work):
            return busy
        return busy._replace(chain_s=self._way_s(work, layer, price))

    def _sum(self, work: Iterable[OpClass], layer: int, price: Price, times: int) -> Busy:
        seconds, link_s, dram = dict.fromkeys(_QUEUES, 0.0), 0.0, 0.0
        for found in work:
            demand: Demand = price(operation(found, layer))
            queue = found[1]
            seconds[queue] += times * demand.alone_s
            dram += times * demand.alone_s * demand.dram_bytes_per_s
            if queue in _TO_LINK:
                link_s += times * demand.alone_s * demand.link_share
        by_queue = tuple(seconds.values())
        return Busy(by_queue, link_s, dram, by_queue[_ACCEL])


def _prompts_work(shape: BlockShape, on_cpu: OnCpu) -> Iterator[OpClass]:
    """The accelerator computes all of it."""
    del on_cpu
    return prefill_work(shape)


def _is_way(found: OpClass) -> bool:
    """Before and after attention."""
    return found[2] in (Part.PRE, Part.POST)
