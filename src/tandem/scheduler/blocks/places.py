"""Which sequences are in a block, in which batch, and where their KV lies."""

from collections import Counter
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tandem.memory.pool import BlockPool
from tandem.memory.pool_state import PoolCounts
from tandem.plan.binding import IntArray, LongArray
from tandem.plan.block_room import BlockRoom
from tandem.plan.offline import OfflinePlan
from tandem.scheduler.blocks.growth import Growth, growth_of
from tandem.scheduler.blocks.host_pool import HostPool
from tandem.scheduler.rows import UNLIMITED, RowTable
from tandem.scheduler.seating import set_up_row
from tandem.scheduler.sequence import Sequence
from tandem.spec.tier import Tier


class KVHome(IntEnum):
    """What becomes of a sequence's KV; the order in which places are given away."""

    RESIDENT = 0
    CPU = 1
    STREAMED = 2


@dataclass(frozen=True, slots=True)
class Place:
    """One of a batch's sequences with that home, its KV on the host pinned or not."""

    batch: int
    home: KVHome
    index: int
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class _Stay:
    """A sequence's growth, and the number of passes there had been when it entered."""

    growth: LongArray
    since: int


class BlockPlaces:
    """Places of a block, and the blocks of KV that their sequences have.

    A sequence enters if all have room in every pass to come, so that none ever has to leave, and
    gets its blocks as it grows. What nobody needs any more is given away at once. A program over
    prompts waits for operations in flight that still name it (`plan.prefill_template`). In a pass,
    a load for a sequence that is over may still be under way: it ends before the new owner's token
    is written to the slot, and what it reads of the host's memory, nobody will see.

    Streamed sequences have their KV in the pinned part of the host's memory. So have of those that
    the CPU attends to as many as may come to be streamed, and more where the rest is full.

    Attributes:
        rows: tables of the sequences. home, batch, index: int32 [rows]; their places.
        made: int32 [rows]; leading blocks that are recomputed.
        pinned: bool [rows]; whether its KV is in the host's pinned memory.
        slot_blocks: int32 [rows, max_blocks]; of streamed rows, blocks of the slot, the first one
            being that after the recomputed ones.
        device, host: blocks of both memories.
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
        self.pinned: NDArray[np.bool_] = np.zeros(plan.block_rows, dtype=np.bool_)
        self.device = BlockPool(Tier.DEVICE, room.device_blocks)
        self.host = HostPool(room.host_blocks, room.pinned_blocks)
        self._slots = [BlockPool(Tier.DEVICE, room.slot_blocks) for _ in range(plan.batches)]
        tokens = plan.max_model_len
        self._device_growth = Growth(room.device_blocks, tokens)
        self._host_growth = {
            True: Growth(room.pinned_blocks, tokens),
            False: Growth(room.host_blocks - room.pinned_blocks, tokens),
        }
        self._most_pinned = 0  # of a batch, that are streamed or may come to be
        if plan.terms is not None:
            bound = plan.terms.most_pinned_rows
            self._most_pinned = plan.host_rows if bound is None else bound
        self._slot_growth = [Growth(room.slot_blocks, tokens) for _ in range(plan.batches)]
        self._stays: dict[int, _Stay] = {}
        self._passes = 0
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

    def counts(self, tier: Tier) -> PoolCounts:
        """Of a memory's blocks."""
        return self.device.counts() if tier is Tier.DEVICE else self.host.counts()

    def count(self, home: KVHome) -> int:
        """Places of a batch with that home."""
        return self._counts[home]

    def could_hold(self, sequence: Sequence) -> bool:
        """Whether a sequence has room in a block without others."""
        return any(
            any(self._growth_of(sequence, home)[-1] <= most for most in self._capacities(home))
            for home, count in self._counts.items()
            if count
        )

    def find(self, sequence: Sequence) -> Place | None:
        """A free place with room for a sequence, in the batch with the fewest of that home."""
        order = sorted(self._free, key=lambda key: (key[1], -len(self._free[key]), key[0]))
        for batch, home in order:
            places = self._free[batch, home]
            if not places:
                continue
            growth = self._growth_of(sequence, home)
            for pinned in self._kinds(batch, home):
                if self._has_room(growth, batch, home, pinned=pinned):
                    return Place(batch, home, places[-1], pinned)
        return None

    def share(self, streamed_rows: int) -> bool:
        """Give that many of each batch's places with KV on the host to streamed sequences, the
        others to those that the CPU attends to; of sequences that are there, as large a share as
        slots have room for. Not where prefixes are recomputed. Between two passes only.

        Returns: whether any sequence is attended otherwise from now on.
        """
        hosted = self._plan.host_rows
        self._counts[KVHome.STREAMED] = streamed_rows
        self._counts[KVHome.CPU] = hosted - streamed_rows
        changed = False
        for batch in range(self._plan.batches):
            rows = self.members(batch)
            streamed = rows[self.home[rows] == int(KVHome.STREAMED)].tolist()
            attended = rows[self.home[rows] == int(KVHome.CPU)].tolist()
            wanted = round(streamed_rows * (len(streamed) + len(attended)) / hosted)
            for row in streamed[wanted:]:
                self._stop_streaming(row)
            pinned = [row for row in attended if self.pinned[row]]
            entering = pinned[: max(0, wanted - len(streamed))]
            begun = sum(self._start_streaming(row) for row in entering)
            changed |= begun > 0 or len(streamed) > wanted
            taken = min(len(streamed), wanted) + begun
            self._share_free(batch, max(0, streamed_rows - taken))
        return changed

    def homes(self) -> frozenset[KVHome]:
        """Those that sequences have, or may enter with."""
        held = {KVHome(home) for home in self.home[self.rows.owned()].tolist()}
        return frozenset(held | {home for home, count in self._counts.items() if count})

    def num_open(self, sequence: Sequence) -> int:
        """About how many sequences like this one have place and room now; in an empty block at
        least one.
        """
        free = Counter[KVHome]()
        for (_, home), left in self._free.items():
            free[home] += len(left)
        attended, streamed = (
            self._growth_of(sequence, home) for home in (KVHome.CPU, KVHome.STREAMED)
        )
        count = min(free[KVHome.RESIDENT], self._device_growth.times(attended))
        growth = streamed if free[KVHome.STREAMED] else attended
        pinned, pageable = (self._host_growth[kind].times(growth) for kind in (True, False))
        hosted = free[KVHome.STREAMED] + free[KVHome.CPU]
        return count + min(hosted, pinned + min(free[KVHome.CPU], pageable))

    def blocks_of(self, sequence: Sequence) -> int:
        """That a sequence holds in the end, where nothing is recomputed."""
        return int(self._growth_of(sequence, KVHome.CPU)[-1])

    def enter(self, sequence: Sequence, place: Place) -> int:
        """Give a sequence that place; returns its row."""
        growth, home = self._growth_of(sequence, place.home), place.home
        self._free[place.batch, home].remove(place.index)
        row = self.rows.take()
        set_up_row(self.rows, row, sequence, UNLIMITED)
        self.home[row], self.batch[row], self.index[row] = home, place.batch, place.index
        self.pinned[row] = place.pinned
        # recomputed blocks have no memory: the first that there is comes after them
        self.made[row] = self.rows.num_blocks[row] = self._made(sequence, home)
        self._stays[row] = _Stay(growth, self._passes)
        for each in self._growths(home, place.batch, pinned=place.pinned):
            each.add(growth)
        self._extend(row, int(growth[0]))
        return row

    def leave(self, row: int) -> None:
        """Its sequence is over."""
        home, batch = KVHome(int(self.home[row])), int(self.batch[row])
        made, end = int(self.made[row]), int(self.rows.num_blocks[row])
        stay = self._stays.pop(row)
        pinned = bool(self.pinned[row])
        for each in self._growths(home, batch, pinned=pinned):
            each.remove(stay.growth[self._passes - stay.since :])
        held = self.rows.block_ids[row, made:end]
        if home is KVHome.RESIDENT:
            self.device.release(held, None)
        else:
            self.host.release(held, pinned=pinned)
        if home is KVHome.STREAMED:
            self._slots[batch].release(self.slot_blocks[row, : end - made], None)
        self._free[batch, home].append(int(self.index[row]))
        self.rows.free(row)

    def gather(self) -> None:
        """Between two passes, where all KV is on the accelerator: share sequences out evenly among
        as few batches as have places for all.
        """
        sizes = [len(self.members(batch)) for batch in range(self._plan.batches)]
        kept = max(1, -(-sum(sizes) // self._plan.batch_rows))
        even = -(-sum(sizes) // kept)
        for batch in range(self._plan.batches):
            for row in self.members(batch)[even if batch < kept else 0 :].tolist():
                smallest = min(range(kept), key=sizes.__getitem__)
                self._move(row, smallest)
                sizes[batch] -= 1
                sizes[smallest] += 1

    def begin_pass(self) -> None:
        """A token of every sequence: those whose last block is full get another one."""
        for each in (self._device_growth, *self._host_growth.values(), *self._slot_growth):
            each.advance()
        self._passes += 1
        rows = self.rows.owned()
        needed = (self.rows.known[rows] - 1) // self._plan.block_size + 1
        for row in rows[needed > self.rows.num_blocks[rows]].tolist():
            self._extend(row, 1)

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
        held = Counter[tuple[Tier, bool]]()
        for row in self.rows.owned().tolist():
            kind = _tier(KVHome(int(self.home[row]))), bool(self.pinned[row])
            held[kind] += int(self.rows.num_blocks[row] - self.made[row])
        self.host.check()
        accounts = {
            (Tier.DEVICE, False): (self.device, self._device_growth),
            (Tier.HOST, True): (self.host.pinned, self._host_growth[True]),
            (Tier.HOST, False): (self.host.pageable, self._host_growth[False]),
        }
        for kind, (pool, growth) in accounts.items():
            pool.check()
            assert pool.counts().held == held[kind], f"{kind}: {pool.counts()}, {held[kind]}"
            assert growth.held == held[kind], f"{kind}: {growth.held} foreseen"
        for pool, growth in zip(self._slots, self._slot_growth, strict=True):
            pool.check()
            assert pool.counts().held == growth.held, f"{pool.counts()}, {growth.held} foreseen"
        free = sum(len(places) for places in self._free.values())
        assert free == self.rows.num_free, f"{free} places, {self.rows.num_free} rows"

    def _move(self, row: int, batch: int) -> None:
        """To a free place of another batch, its KV on the accelerator as before."""
        home = KVHome.RESIDENT
        self._free[int(self.batch[row]), home].append(int(self.index[row]))
        self.batch[row], self.index[row] = batch, self._free[batch, home].pop()

    def _extend(self, row: int, blocks: int) -> None:
        """So many blocks more, of its memory and of its batch's slot."""
        end, home = int(self.rows.num_blocks[row]), KVHome(int(self.home[row]))
        pinned = bool(self.pinned[row])
        found = (
            self.device.allocate(blocks)
            if home is KVHome.RESIDENT
            else self.host.allocate(blocks, pinned=pinned)
        )
        self.rows.block_ids[row, end : end + blocks] = found
        self.rows.num_blocks[row] = end + blocks
        if home is KVHome.STREAMED:
            first = end - int(self.made[row])
            slot = self._slots[int(self.batch[row])]
            self.slot_blocks[row, first : first + blocks] = slot.allocate(blocks)

    def _stop_streaming(self, row: int) -> None:
        """Its pages stay where they are, and its blocks of the slot are free."""
        batch, end = int(self.batch[row]), int(self.rows.num_blocks[row])
        stay = self._stays[row]
        self._slot_growth[batch].remove(stay.growth[self._passes - stay.since :])
        self._slots[batch].release(self.slot_blocks[row, :end], None)
        self.home[row] = int(KVHome.CPU)

    def _start_streaming(self, row: int) -> bool:
        """Whether its batch's slot has room for it, in every pass to come."""
        batch, end = int(self.batch[row]), int(self.rows.num_blocks[row])
        stay = self._stays[row]
        rest = stay.growth[self._passes - stay.since :]
        if not self._slot_growth[batch].fits(rest):
            return False
        self._slot_growth[batch].add(rest)
        self.slot_blocks[row, :end] = self._slots[batch].allocate(end)
        self.home[row] = int(KVHome.STREAMED)
        return True

    def _share_free(self, batch: int, streamed: int) -> None:
        """So many of a batch's free places on the host are for streamed sequences."""
        homes = KVHome.STREAMED, KVHome.CPU
        free = [index for home in homes for index in self._free[batch, home]]
        self._free[batch, KVHome.STREAMED] = free[:streamed]
        self._free[batch, KVHome.CPU] = free[streamed:]

    def _growths(self, home: KVHome, batch: int, *, pinned: bool) -> list[Growth]:
        """Of all that a sequence with that home takes blocks of."""
        if home is KVHome.RESIDENT:
            return [self._device_growth]
        slot = [self._slot_growth[batch]] if home is KVHome.STREAMED else []
        return [self._host_growth[pinned], *slot]

    def _has_room(self, growth: LongArray, batch: int, home: KVHome, *, pinned: bool) -> bool:
        return all(each.fits(growth) for each in self._growths(home, batch, pinned=pinned))

    def _kinds(self, batch: int, home: KVHome) -> tuple[bool, ...]:
        """Whether KV of another sequence with that home may be pinned, what is better first."""
        if home is KVHome.RESIDENT:
            return (False,)
        if home is KVHome.STREAMED:
            return (True,)
        rows = self.rows.owned()
        attended = rows[(self.batch[rows] == batch) & (self.home[rows] == int(KVHome.CPU))]
        spare = self._most_pinned - self._counts[KVHome.STREAMED]
        return (True, False) if int(self.pinned[attended].sum()) < spare else (False, True)

    def _capacities(self, home: KVHome) -> tuple[int, ...]:
        """Of what a sequence with that home may lie in, each."""
        if home is KVHome.RESIDENT:
            return (self.device.num_blocks,)
        pinned = self.host.pinned.num_blocks
        if home is KVHome.STREAMED:
            return (min(pinned, self._room.slot_blocks),)
        return pinned, self.host.pageable.num_blocks

    def _made(self, sequence: Sequence, home: KVHome) -> int:
        """Leading blocks that are recomputed, within the prompt only."""
        if home is not KVHome.STREAMED:
            return 0
        return min(self._plan.recomputed_tokens, sequence.num_prompt) // self._plan.block_size

    def _growth_of(self, sequence: Sequence, home: KVHome) -> LongArray:
        made, size = self._made(sequence, home), self._plan.block_size
        return growth_of(sequence.num_prompt, sequence.limit, made, size)


def _tier(home: KVHome) -> Tier:
    return Tier.DEVICE if home is KVHome.RESIDENT else Tier.HOST
