"""No pass of a block can be shorter: each resource's work, and what waits for each other.

A batch goes through all layers one after the other. Where the CPU attends, that is at least its way
through them on the accelerator, to the CPU and back, and its own attention there.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from tandem.plan.block_shape import CACHE_SLOTS
from tandem.plan.program import Queue
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.pass_work import QUEUES, PassTerm, PassWork
from tandem.planner.offline.prices import Price
from tandem.planner.offline.work import (
    CACHE,
    CPU_LAYER,
    CPU_MLP,
    LOAD,
    LOAD_MLP,
    PREFIX,
    READ,
    operation,
)
from tandem.planner.question import Question

_ACCEL, _CPU = QUEUES.index(Queue.ACCEL), QUEUES.index(Queue.CPU)


class Busy(NamedTuple):
    """What a pass, or a part of it, asks of each queue, in seconds.

    Attributes:
        link_s: bytes to the accelerator at the link's rate.
        chain_s: of operations that wait for each other.
        way_s: of these, what waits in the layers: one batch on the accelerator and on the CPU.
            Linear in the shares.
    """

    by_queue: tuple[float, ...]
    link_s: float
    dram_bytes: float
    chain_s: float = 0.0
    way_s: float = 0.0

    @property
    def accelerator_s(self) -> float:
        """Of its queue."""
        return self.by_queue[_ACCEL]

    @property
    def cpu_s(self) -> float:
        """Of the CPU's queue."""
        return self.by_queue[_CPU]

    @property
    def host_s(self) -> float:
        """Of the CPU's queue, or of a batch's way over it."""
        return max(self.cpu_s, self.chain_s)


class LeastPrices(Protocol):
    """Of passes, linear in the shares."""

    def least_decode(self, candidate: BlockCandidate) -> Price:
        """Of a pass that gives every sequence a token."""
        ...

    def least_way(self, candidate: BlockCandidate) -> Price | None:
        """Of a batch of such a pass, since the longest way of any is waited for; None: that."""
        ...

    def least_prefill(self, candidate: BlockCandidate) -> Price:
        """Of the pass over all prompts."""
        ...


class BlockBound:
    """Bounds for one question."""

    def __init__(self, question: Question, prices: LeastPrices, work: PassWork) -> None:
        self._q, self._prices, self._work = question, prices, work
        self._dram_bytes_per_s = question.hardware.host.pool_bytes_per_s
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
            price = self._prices.least_decode(candidate)
            way = self._prices.least_way(candidate)
            self._decode[candidate] = _busy(self._work.decode(candidate), price, way)
        return self._decode[candidate]

    def prefill_busy(self, candidate: BlockCandidate) -> Busy:
        """Work of the pass over all prompts, but for the activations' way to the host and back."""
        if candidate not in self._prefill:
            price = self._prices.least_prefill(candidate)
            self._prefill[candidate] = _busy(self._work.prefill(candidate), price)
        return self._prefill[candidate]

    def load_s(self, candidate: BlockCandidate) -> float:
        """Of the link, what it takes to bring a layer, or its MLP."""
        load = operation(LOAD_MLP if candidate.mlps else LOAD, self._q.model.num_layers - 1)
        return self._prices.least_decode(candidate)(load).alone_s

    def crossing_s(self, candidate: BlockCandidate) -> float:
        """Of the link's bytes, those of a layer, or its MLP, at the link's rate."""
        found = LOAD_MLP if candidate.mlps else LOAD
        load = self._prices.least_decode(candidate)(operation(found, self._q.model.num_layers - 1))
        return load.alone_s * load.link_share

    def reads_s(self, candidate: BlockCandidate, layers: int) -> float:
        """Of the disk, what it takes to read so many layers."""
        # its rate is not known where nothing is read
        if not layers:
            return 0.0
        return layers * self._prices.least_decode(candidate)(operation(READ, 0)).alone_s

    def ahead_s(self, candidate: BlockCandidate) -> float:
        """Of keys and values, and prefixes, that come to their slots for the next pass, as far as
        the link binds passes: a program over prompts waits for them, and they come again behind it.
        """
        if not candidate.streamed_rows:
            return 0.0
        copies = (CACHE, PREFIX) if candidate.recomputed_tokens else (CACHE,)
        price, busy = self._prices.least_decode(candidate), self.decode_busy(candidate)
        slot_s = sum(price(operation(copy, 0)).alone_s for copy in copies)
        return CACHE_SLOTS * slot_s * busy.link_s / self._least_s(busy)

    def lent_s(self, candidate: BlockCandidate) -> tuple[float, float]:
        """Of a pass, what the CPU takes to compute a layer, or its MLP, for all batches, and the
        link to bring it.
        """
        work = (CPU_MLP,) if candidate.mlps else CPU_LAYER
        price = self._prices.least_decode(candidate)
        computed_s = sum(price(operation(each, 0)).alone_s for each in work)
        load = operation(LOAD_MLP if candidate.mlps else LOAD, 0)
        return candidate.batches * computed_s, price(load).alone_s

    def divided_s(self, candidate: BlockCandidate) -> tuple[float, float]:
        """Of a pass, what all columns of an MLP take the CPU for all batches, and the link's bytes
        at its rate, if either may have any number.
        """
        price = self._prices.least_decode(candidate)
        computed, load = price(operation(CPU_MLP, 0)), price(operation(LOAD_MLP, 0))
        return candidate.batches * computed.alone_s, load.alone_s * load.link_share

    def _least_s(self, busy: Busy) -> float:
        dram_s = busy.dram_bytes / self._dram_bytes_per_s
        return max(*busy.by_queue, busy.link_s, dram_s, busy.chain_s)


def _busy(terms: Iterable[PassTerm], price: Price, on_way: Price | None = None) -> Busy:
    """Of a whole pass.

    Args:
        on_way: what a batch's way takes, if that is not what others take.
    """
    seconds, link_s, dram_bytes = [0.0] * len(QUEUES), 0.0, 0.0
    chain_s = way_s = 0.0
    for op, queue, to_link, times, chained, way in terms:
        demand = price(op)
        one_s = demand.alone_s
        all_s = times * one_s
        seconds[queue] += all_s
        dram_bytes += all_s * demand.dram_bytes_per_s
        chain_s += chained * one_s
        if way:
            way_s += way * (one_s if on_way is None else on_way(op).alone_s)
        if to_link:
            link_s += all_s * demand.link_share
    return Busy(tuple(seconds), link_s, dram_bytes, chain_s, way_s)
