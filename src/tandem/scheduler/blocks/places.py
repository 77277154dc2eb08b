"""Which sequences are in a block, in which batch, and where their KV lies."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from tandem.memory.pool import BlockPool
from tandem.plan.binding import IntArray, LongArray
from tandem.plan.block_room import BlockRoom
from tandem.plan.offline import OfflinePlan
from tandem.scheduler.row_setup import set_up_row
from tandem.scheduler.rows import UNLIMITED, RowTable
from tandem.scheduler.sequence import Sequence
from tandem.spec.tier import Tier


class KVHome(IntEnum):
    """What becomes of a sequence's KV; the order in which places are given away."""

    RESIDENT = 0
    CPU = 1
    STREAMED = 2


@dataclass(frozen=True, slots=True)
class Place:
    """One of a batch's sequences with that home."""

    batch: int
    home: KVHome
    index: int


class BlockPlaces:
    """Places of a block, each with the blocks that its sequence may ever need.

    A sequence gets all of them when it enters, so that none ever has to leave. What nobody needs
    any more is given away at once: operations in flight that still name it end before the prompts
    that are written there, which wait for them (`plan.prefill_template`).

    Attributes:
        rows: tables of the sequences. home, batch, index: int32 [rows]; their places.
        made: int32 [rows]; leading blocks that are recomputed.
        slot_blocks: int32 [rows, max_blocks]; of streamed rows, blocks of the slot, the first one
            being that after the recomputed ones.
        pools: blocks of both memories.
    """

    def __init__(self, plan: OfflinePlan, room: BlockRoom) -> None:
        self._plan, self._room = plan, room
        most = -(-plan.max_model_len // plan.block_size) + 1
        self.rows = RowTable(plan.block_rows, most)
        self.home = np.zeros(plan.block_rows, dtype=np.int32)
        self.batch = np.zeros(plan.block_rows, dtype=np.int32)
        self.index = np.zeros(plan.block_rows, dtype=np.int32)
        self.made = np.zeros(plan.block_rows, dtype=np.int32)
        self.slot_blocks: IntArray = np.zeros((plan.block_rows, most), dtype=np.int32)
        self.pools = {
            Tier.DEVICE: BlockPool(Tier.DEVICE, room.device_blocks),
            Tier.HOST: BlockPool(Tier.HOST, room.host_blocks),
        }
        self._slots = [BlockPool(Tier.DEVICE, room.slot_blocks) for _ in range(plan.batches)]
        self._counts = {
            KVHome.RESIDENT: plan.resident_rows,
            KVHome.CPU: plan.cpu_rows,
            KVHome.STREAMED: plan.streamed_rows,
        }
        self._free = {
            (batch, home): list(range(count))[::-1]
            for batch in range(plan.batches)
            for home, count in self._counts.items()
        }

    @property
    def num_taken(self) -> int:
        """Sequences in the block."""
        return self._plan.block_rows - self.rows.num_free

    @property
    def num_free(self) -> int:
        """Places without a sequence."""
        return self.rows.num_free

    def could_hold(self, sequence: Sequence) -> bool:
        """Whether a sequence has room in a block without others."""
        return any(
            self._needs(sequence, home).fits(
                self.pools[_tier(home)].num_blocks, self._room.slot_blocks
            )
            for home, count in self._counts.items()
            if count
        )

    def find(self, sequence: Sequence) -> Place | None:
        """A free place with room for a sequence, in the batch with the fewest of that home."""
        order = sorted(self._free, key=lambda key: (key[1], -len(self._free[key]), key[0]))
        for batch, home in order:
            places = self._free[batch, home]
            needs = self._needs(sequence, home)
            if places and needs.fits(
                self.pools[_tier(home)].available, self._slots[batch].available
            ):
                return Place(batch, home, places[-1])
        return None

    def enter(self, sequence: Sequence, place: Place) -> int:
        """Give a sequence that place; returns its row."""
        needs = self._needs(sequence, place.home)
        self._free[place.batch, place.home].remove(place.index)
        row = self.rows.take()
        set_up_row(self.rows, row, sequence, UNLIMITED)
        self.home[row], self.batch[row], self.index[row] = place.home, place.batch, place.index
        self.made[row] = needs.made
        tier = _tier(place.home)
        blocks = self.pools[tier].allocate(needs.blocks)
        # recomputed blocks have no memory: the first that there is comes after them
        self.rows.block_ids[row, needs.made : needs.made + needs.blocks] = blocks
        self.rows.num_blocks[row] = needs.made + needs.blocks
        if place.home is KVHome.STREAMED:
            self.slot_blocks[row, : needs.blocks] = self._slots[place.batch].allocate(needs.blocks)
        return row

    def leave(self, row: int) -> None:
        """Its sequence is over."""
        home, batch = KVHome(int(self.home[row])), int(self.batch[row])
        made, end = int(self.made[row]), int(self.rows.num_blocks[row])
        self.pools[_tier(home)].release(self.rows.block_ids[row, made:end], None)
        if home is KVHome.STREAMED:
            self._slots[batch].release(self.slot_blocks[row, : end - made], None)
        self._free[batch, home].append(int(self.index[row]))
        self.rows.free(row)

    def members(self, batch: int) -> LongArray:
        """Rows of a batch, by home."""
        rows = self.rows.owned()
        rows = rows[self.batch[rows] == batch]
        return rows[np.argsort(self.home[rows], kind="stable")]

    def check(self) -> None:
        """Every held block has its row, and nothing is held without one.

        Raises:
            AssertionError: with the numbers.
        """
        rows = self.rows.owned()
        held = {Tier.DEVICE: 0, Tier.HOST: 0}
        for row in rows.tolist():
            tier = _tier(KVHome(int(self.home[row])))
            held[tier] += int(self.rows.num_blocks[row] - self.made[row])
        for tier, pool in self.pools.items():
            pool.check()
            assert pool.counts().held == held[tier], f"{tier.label}: {pool.counts()}, {held[tier]}"
        for pool in self._slots:
            pool.check()
        free = sum(len(places) for places in self._free.values())
        assert free == self.rows.num_free, f"{free} places, {self.rows.num_free} rows"

    def _needs(self, sequence: Sequence, home: KVHome) -> "_Needs":
        """The last token needs no KV; a prefix is recomputed within the prompt only."""
        size = self._plan.block_size
        total = -(-max(1, sequence.limit - 1) // size)
        made = 0
        if home is KVHome.STREAMED:
            made = min(self._plan.recomputed_tokens, sequence.num_prompt) // size
        return _Needs(made, total - made, total - made if home is KVHome.STREAMED else 0)


@dataclass(frozen=True, slots=True)
class _Needs:
    """Blocks that a sequence takes.

    Attributes:
        made: that are recomputed, and have no memory. blocks: the others.
        streamed: of its batch's slot.
    """

    made: int
    blocks: int
    streamed: int

    def fits(self, pool: int, slot: int) -> bool:
        """Whether so many blocks of a memory, and of a slot, are enough."""
        return self.blocks <= pool and self.streamed <= slot


def _tier(home: KVHome) -> Tier:
    return Tier.DEVICE if home is KVHome.RESIDENT else Tier.HOST
