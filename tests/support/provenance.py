"""The toy model on an executor's memory: every KV slot knows which token of which sequence wrote
it.

A slot holds a hash of the whole sequence up to its token, and the token's position. So a wrong
block table, a block used again too early or a copy that comes too late either raises
`ProvenanceError` (the position disagrees) or changes all later tokens (the hash disagrees).
Sampling, slot table, events and page copies are the production code.
"""

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from tests.support import toy_maths
from tests.support.toy_maths import Hashes

from tandem.plan.binding import TierAttention
from tandem.plan.events import Event
from tandem.plan.program import OpKind, Part
from tandem.plan.templates import (
    DEVICE_PARTIAL,
    HOST_PARTIAL,
    HOST_QKV,
    LOGITS,
    STAGED_PARTIAL,
    STATE,
)
from tandem.runtime.buffers import BufferSpace, Place
from tandem.runtime.kv_store import KVStore
from tandem.runtime.lane_context import LaneContext
from tandem.runtime.op_runner import OpRunner
from tandem.runtime.running import Running
from tandem.spec.tier import Tier

_PRODUCTION = (OpKind.SAMPLE, Part.TOKENS, Part.PAGES)


class ProvenanceError(AssertionError):
    """A slot was read that does not hold what the program believes."""


@dataclass(frozen=True, slots=True)
class ToyState:
    """A lane between two operations; [t] each."""

    token_ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    hidden: Hashes
    query: Hashes
    key: Hashes
    attention: Hashes

    @property
    def size_bytes(self) -> int:
        return 6 * self.hidden.nbytes


@dataclass(frozen=True, slots=True)
class Staged:
    """Queries and keys on their way to the host."""

    query: Hashes
    key: Hashes

    @property
    def size_bytes(self) -> int:
        return self.query.nbytes + self.key.nbytes


@dataclass(frozen=True, slots=True)
class Partial:
    """Attention over one tier: sums, and how many keys each query saw."""

    total: Hashes
    count: NDArray[np.int64]

    @property
    def size_bytes(self) -> int:
        return self.total.nbytes + self.count.nbytes


class ProvenanceRunner:
    """Takes `OpRunner`'s place in a machine.

    Args:
        production: executes sampling and page copies against the same memory.
        vocab_size: number of scores per token.
    """

    hybrid = None  # every step is launched as operations

    def __init__(
        self,
        production: OpRunner,
        kv: KVStore,
        buffers: BufferSpace,
        slots: torch.Tensor,
        vocab_size: int,
    ) -> None:
        self._production = production
        self._kv = kv
        self._buffers = buffers
        self._slots = slots
        self._vocab_size = vocab_size

    def events(self, running: Running) -> list[Event]:
        """As the production code has it."""
        return self._production.events(running)

    def run(self, running: Running) -> None:
        """Execute one operation."""
        op = running.op
        if op.kind in _PRODUCTION or op.part in _PRODUCTION:
            self._production.run(running)
            return
        for index in running.context.active(op):
            self._run_lane(running, running.context.lanes[index])

    def _run_lane(self, running: Running, lane: LaneContext) -> None:
        match running.op.kind, running.op.part:
            case OpKind.STAGE, Part.EMBED:
                self._embed(running, lane)
            case OpKind.STAGE, Part.PRE:
                self._pre(running, lane)
            case OpKind.STAGE, Part.POST:
                self._post(running, lane)
            case OpKind.STAGE, Part.HEAD:
                self._head(running, lane)
            case OpKind.COPY, Part.QKV:
                self._stage_qkv(running, lane)
            case OpKind.COPY, Part.PARTIAL:
                self._put(running, STAGED_PARTIAL, lane, self._get(running, HOST_PARTIAL, lane))
            case OpKind.APPEND, _:
                self._append(running, lane)
            case OpKind.ATTEND, _:
                self._attend(running, lane)
            case OpKind.MERGE, _:
                self._merge(running, lane)
            case kind:
                raise ProvenanceError(f"no toy for {kind}")

    # --- stages -----------------------------------------------------------------------------------

    def _embed(self, running: Running, lane: LaneContext) -> None:
        binding = lane.slot.binding
        sampled = self._slots.numpy()[binding.token_rows]
        ids = np.where(binding.token_ids < 0, sampled, binding.token_ids)
        if len(ids) and not 0 <= ids.min() <= ids.max() < self._vocab_size:
            raise ProvenanceError(f"token ids {ids.tolist()} are outside the vocabulary")
        positions = binding.positions.astype(np.int64)
        hidden = toy_maths.embed(ids, positions)
        nothing = np.zeros_like(hidden)
        self._put(running, STATE, lane, ToyState(ids, positions, hidden, nothing, nothing, nothing))

    def _pre(self, running: Running, lane: LaneContext) -> None:
        s = self._state(running, lane)
        query, key = toy_maths.query_and_key(s.hidden, running.op.layer)
        state = ToyState(s.token_ids, s.positions, s.hidden, query, key, s.attention)
        self._put(running, STATE, lane, state)

    def _post(self, running: Running, lane: LaneContext) -> None:
        s = self._state(running, lane)
        hidden = toy_maths.advance(s.hidden, s.attention, running.op.layer)
        state = ToyState(s.token_ids, s.positions, hidden, s.query, s.key, s.attention)
        self._put(running, STATE, lane, state)

    def _head(self, running: Running, lane: LaneContext) -> None:
        s, index = self._state(running, lane), lane.slot.binding.logits_index
        scores = toy_maths.logits(s.hidden[index], s.token_ids[index], self._vocab_size)
        self._put(running, LOGITS, lane, torch.from_numpy(scores))

    # --- attention --------------------------------------------------------------------------------

    def _stage_qkv(self, running: Running, lane: LaneContext) -> None:
        s, binding = self._state(running, lane), lane.slot.binding
        attend, append = binding.attention[Tier.HOST], binding.append.get(Tier.HOST)
        key = s.key[:0] if append is None else _select(s.key, append.token_index)
        staged = Staged(_select(s.query, attend.token_index), key)
        self._put(running, HOST_QKV, lane, staged, Place.HOST)

    def _append(self, running: Running, lane: LaneContext) -> None:
        tier = _tier(running)
        append = lane.slot.binding.append.get(tier)
        if append is None:
            return
        positions = _select(lane.slot.binding.positions, append.token_index)
        if tier is Tier.HOST:
            keys = cast(Staged, self._get(running, HOST_QKV, lane)).key
        else:
            keys = _select(self._state(running, lane).key, append.token_index)
        pages = self._pages(running)
        block, offset = np.divmod(append.slots, pages.shape[3])
        pages[block, 0, 0, offset, 0] = keys.view(np.int64)
        pages[block, 1, 0, offset, 0] = positions

    def _attend(self, running: Running, lane: LaneContext) -> None:
        tier = _tier(running)
        attention = lane.slot.binding.attention.get(tier)
        if attention is None:
            return
        if tier is Tier.HOST:
            query = cast(Staged, self._get(running, HOST_QKV, lane)).query
            name, place = HOST_PARTIAL, Place.HOST
        else:
            query = _select(self._state(running, lane).query, attention.token_index)
            name, place = DEVICE_PARTIAL, Place.DEVICE
        partial = attend_pages(self._pages(running), attention, query, f"{running}, {tier.label}")
        self._put(running, name, lane, partial, place)

    def _merge(self, running: Running, lane: LaneContext) -> None:
        s, binding = self._state(running, lane), lane.slot.binding
        total, count = np.zeros_like(s.hidden), np.zeros_like(s.positions)
        for tier, name in ((Tier.DEVICE, DEVICE_PARTIAL), (Tier.HOST, STAGED_PARTIAL)):
            attention = binding.attention.get(tier)
            if attention is None:
                continue
            part = cast(Partial, self._get(running, name, lane))
            where = slice(None) if attention.token_index is None else attention.token_index
            total[where] += part.total
            count[where] += part.count
        if not np.array_equal(count, s.positions + 1):
            seen = f"saw {count.tolist()} keys"
            raise ProvenanceError(f"{running}: tokens at {s.positions.tolist()} {seen}")
        state = ToyState(s.token_ids, s.positions, s.hidden, s.query, s.key, total)
        self._put(running, STATE, lane, state)

    # --- buffers ----------------------------------------------------------------------------------

    def _pages(self, running: Running) -> NDArray[np.int64]:
        op = running.op
        return self._kv.layer(_tier(running), op.layer, op.queue).numpy()

    def _state(self, running: Running, lane: LaneContext) -> ToyState:
        return cast(ToyState, self._get(running, STATE, lane))

    def _get(self, running: Running, name: str, lane: LaneContext) -> object:
        return self._buffers.get((name, lane.key), running.op.queue, running)

    def _put(
        self,
        running: Running,
        name: str,
        lane: LaneContext,
        value: object,
        place: Place = Place.DEVICE,
    ) -> None:
        self._buffers.put((name, lane.key), place, value, running.op.queue)


def attend_pages(
    pages: NDArray[np.int64],  # [blocks, 2, 1, block_size, 1]
    attention: TierAttention,
    query: Hashes,  # [t]
    what: str,
) -> Partial:
    """The toy's attention over one tier, checking the position of every slot it reads.

    Raises:
        ProvenanceError: a visible slot was written for another position, or never.
    """
    size = pages.shape[3]
    total, count = np.zeros_like(query), np.zeros(len(query), dtype=np.int64)
    for row in range(len(attention.block_table)):
        tokens = slice(int(attention.query_start[row]), int(attention.query_start[row + 1]))
        positions = attention.positions[tokens].astype(np.int64)
        table = attention.block_table[row]
        if attention.block_index is None:
            table = table[: int(positions.max()) // size + 1]
            index = np.arange(len(table))
        else:
            own = attention.block_index[row] <= positions.max() // size
            table, index = table[own], attention.block_index[row][own]
        logical = (index.astype(np.int64)[:, None] * size + np.arange(size)).reshape(-1)
        keys = pages[table, 0, 0, :, 0].reshape(-1)
        written = pages[table, 1, 0, :, 0].reshape(-1)
        wrong = np.flatnonzero((logical <= positions.max()) & (written != logical))
        if len(wrong):
            first = int(wrong[0])
            block = int(table[first // size])
            raise ProvenanceError(
                f"{what}: row {row} of the batch reads position {int(logical[first])} from block "
                f"{block}, which holds position {int(written[first])}"
            )
        visible = logical[None, :] <= positions[:, None]
        total[tokens] = toy_maths.attend(query[tokens], keys.view(np.uint64), visible)
        count[tokens] = visible.sum(axis=1)
    return Partial(total, count)


def _select(values: np.ndarray, index: NDArray[np.int64] | None) -> np.ndarray:
    return values if index is None else values[index]


def _tier(running: Running) -> Tier:
    assert running.op.tier is not None
    return running.op.tier
