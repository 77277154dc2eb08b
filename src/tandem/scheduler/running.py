"""Sequences by id and by row, and the ways in which a sequence leaves its row."""

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from tandem.plan.binding import IntArray, LongArray
from tandem.scheduler.in_flight import Flight, MoveInFlight
from tandem.scheduler.kv_manager import KVManager
from tandem.scheduler.overtaking import Overtaking
from tandem.scheduler.returning import Returning
from tandem.scheduler.row_set import RowSet
from tandem.scheduler.rows import MAX_RECENT, UNLIMITED, RowState, RowTable
from tandem.scheduler.sequence import Sequence
from tandem.scheduler.waiting import WaitingQueue
from tandem.spec.config import PreemptionMode
from tandem.spec.tier import TIERS, Tier

if TYPE_CHECKING:
    from tandem.scheduler.preemption import Beside, PreemptionRule

Move = tuple[int, Tier, IntArray, IntArray]
_TOKEN_BYTES = 4
_RECENT_BYTES = MAX_RECENT * _TOKEN_BYTES
_LAST_RECENT = np.array(MAX_RECENT - 1, dtype=np.int32)
_DRAINING = RowState.DRAINING
_MOVING = (RowState.SWAPPING_OUT, RowState.SWAPPING_IN)


class Running:
    """Keeps sequences, rows, blocks and the waiting queue in agreement.

    Args:
        mode: what becomes of preempted KV; without a rule, `auto` recomputes, and `mix` copies.
        most_overtaken: as in `SchedulerConfig`.
    """

    def __init__(
        self,
        rows: RowTable,
        kv: KVManager,
        waiting: WaitingQueue,
        flight: Flight,
        mode: PreemptionMode,
        rule: "PreemptionRule | None" = None,
        *,
        most_overtaken: int,
    ) -> None:
        self._rows = rows
        self._kv = kv
        self._waiting = waiting
        self._flight = flight
        self._mode = mode
        self.rule = rule
        self.returning = Returning(rows, kv)
        self._by_id: dict[str, Sequence] = {}
        self._by_row: list[Sequence | None] = [None] * rows.max_rows
        self._dead: set[int] = set()
        self._moves: list[Move] = []
        self.overtaking = Overtaking(rows, waiting, self.sequence_of, most_overtaken)
        self.num_preemptions = 0

    # --- look-ups ---------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """Unfinished sequences, waiting ones included."""
        return len(self._by_id)

    def find(self, request_id: str) -> Sequence | None:
        """An unfinished sequence."""
        return self._by_id.get(request_id)

    def ids(self) -> list[str]:
        """Ids of all unfinished sequences."""
        return list(self._by_id)

    def sequence_of(self, row: int) -> Sequence:
        """The sequence in a row (a dead one, if its cohort is still under way), up to date."""
        sequence = self._by_row[row]
        assert sequence is not None, f"row {row} has no sequence"
        count = int(self._rows.num_recent[row])
        if count:
            sequence.tokens.frombytes(self._rows.recent[row, :count].tobytes())
            self._rows.num_recent[row] = 0
        return sequence

    def sequences_of(self, rows: LongArray) -> list[Sequence]:
        """Those in some rows, up to date."""
        r, found = self._rows, list[Sequence]()
        counts, recent = r.num_recent[rows].tolist(), r.recent[rows].tobytes()
        for place, (row, count) in enumerate(zip(rows.tolist(), counts, strict=True)):
            sequence = self._by_row[int(row)]
            assert sequence is not None, f"row {row} has no sequence"
            begin = place * _RECENT_BYTES
            sequence.tokens.frombytes(recent[begin : begin + count * _TOKEN_BYTES])
            found.append(sequence)
        r.num_recent[rows] = 0
        return found

    def is_dead(self, row: int) -> bool:
        """True if the row is kept only because its cohort still names it."""
        return row in self._dead

    # --- coming and going -------------------------------------------------------------------------

    def register(self, sequence: Sequence) -> None:
        """A sequence has been accepted."""
        self._by_id[sequence.request_id] = sequence

    def place(self, sequence: Sequence, row: int) -> None:
        """A sequence has got a row."""
        sequence.row = row
        self._by_row[row] = sequence
        self._rows.request_ids[row] = sequence.request_id

    def add_tokens(self, rows: RowSet, token_ids: LongArray) -> None:
        """Append one known token to each row: kept in the table, since most steps read none."""
        r = self._rows
        at = rows.of(r.num_recent)
        r.recent[rows.rows, at] = token_ids
        rows.count_up(r.num_recent)
        rows.count_up(r.known)
        full = at == _LAST_RECENT
        if np.count_nonzero(full):
            for row in rows.rows[full].tolist():
                self.sequence_of(row)

    def end(self, sequence: Sequence) -> None:
        """A sequence is over (finished or aborted): free what nothing in flight names.

        A cohort's member stays until the cohort's token ends, since later sweeps name its blocks.
        """
        del self._by_id[sequence.request_id]
        row = sequence.row
        if row is not None or sequence.preemptions:
            self.overtaking.by(sequence)
        if row is None:
            self._waiting.remove(sequence)
        elif self._rows.cohort[row]:
            self._dead.add(row)
            self._rows.enter(row, RowState.DRAINING)
        else:
            self._vacate(row)

    def _vacate(self, row: int) -> None:
        """Free a row and its blocks; what operations in flight name stays leased."""
        self._dead.discard(row)
        moving = int(self._rows.state[row]) in _MOVING or row in self.returning
        if moving:
            self._cancel_move(row)
        self._kv.release(row, moving=moving)
        self.returning.forget(row)
        self.sequence_of(row).row = None
        self._by_row[row] = None
        self._rows.free(row)

    # --- preemption -------------------------------------------------------------------------------

    def preempt(self, row: int) -> None:
        """Take a row's device memory as soon as nothing in flight names it (`settle_drained`).

        A swapped row gives up its host memory at once; one that returns is swapped again.
        """
        if self._rows.state[row] == int(RowState.SWAPPED):
            self._requeue(row)
        else:
            self._rows.enter(row, RowState.DRAINING)

    def set_aside(self, row: int) -> None:
        """A row that lies on the host whole, of which nothing is in flight, waits there for room on
        the device, as if it had been copied.
        """
        self._rows.device_limit[row] = UNLIMITED
        self._rows.enter(row, RowState.SWAPPED)

    def settle_drained(self) -> None:
        """Complete what waited for operations in flight: deaths in cohorts, preemptions."""
        if not self._rows.count(_DRAINING):
            return
        for row in (self._rows.state == int(RowState.DRAINING)).nonzero()[0].tolist():
            if not self._rows.drained(row):
                continue
            if row in self._dead:
                self._vacate(row)
            elif row in self.returning:
                self.num_preemptions += 1
                self._cancel_move(row)
                self.returning.back_out(row)
            elif self._can_swap_out(row) and self._swaps(row):
                self.num_preemptions += 1
                self._begin_move(row, Tier.HOST)
            else:
                self.num_preemptions += 1
                self._requeue(row)

    def _requeue(self, row: int) -> None:
        """Back to the waiting queue at the old rank; its tokens will be computed again."""
        sequence = self.sequence_of(row)
        sequence.preemptions += 1
        began_here = self._rows.device_limit[row] == UNLIMITED and not self._rows.leaves[row]
        sequence.began_here = bool(began_here)
        sequence.overtaken = int(self._rows.overtaken[row])
        sequence.tokens_before = int(self._rows.tokens_before[row])
        self._vacate(row)
        self._waiting.add(sequence)

    def _swaps(self, row: int) -> bool:
        if self._mode != "auto":
            return self._mode != "recompute"
        if self.rule is None:
            return False
        r = self._rows
        blocks = int(r.num_blocks[row] - r.num_host_blocks[row])
        ready = self._kv.tokens_others_hold(row)
        return self.rule.swaps(blocks, ready, int(r.computed[row]), self._beside())

    def _beside(self) -> "Beside":
        """What the accelerator does for others."""
        from tandem.scheduler.preemption import Beside

        r = self._rows
        running = (r.state == int(RowState.RUNNING)).nonzero()[0]
        here = running[r.num_host_blocks[running] == 0]
        prompts = len(self._waiting) > 0 or bool((r.remaining(running) > 1).any())
        return Beside(len(running), float(r.submitted[here].sum()), prompts)

    def _can_swap_out(self, row: int) -> bool:
        device = int(self._rows.num_blocks[row] - self._rows.num_host_blocks[row])
        return 0 < device <= self._kv.pools[Tier.HOST].available

    # --- moves between tiers ----------------------------------------------------------------------

    def swap_in(self, row: int) -> None:
        """Begin to bring what a row has on the host to the device: a swapped row's, or a prefix."""
        self._begin_move(row, Tier.DEVICE)

    def come_back(self, row: int) -> None:
        """Begin to bring a swapped row to the device: what is cached there is shared, more of its
        beginning computed again where that is sooner, and the others' KV copied.
        """
        ready = self._kv.ready_on_device(row, self.sequence_of(row))
        head = self._blocks_computed(row, len(ready))
        if not head:
            self.swap_in(row)
            return
        source, blocks = self.returning.begin(row, ready, head)
        self._moves.append((row, Tier.DEVICE, source, blocks))

    def _blocks_computed(self, row: int, ready: int) -> int:
        """Leading blocks of a row that comes back which are not copied, those `ready` included."""
        if self.rule is None:
            return ready
        computed, queued = int(self._rows.computed[row]), self.num_awaited(Tier.DEVICE)
        return self.rule.way_back(computed, ready, queued, self._beside()).head

    def leave(self, row: int) -> None:
        """Begin to bring all that a row has on the device to the host, where it goes on: no step
        names it until it has arrived, and those that do already come before the copy.
        """
        self._begin_move(row, Tier.HOST)

    def _begin_move(self, row: int, target: Tier) -> None:
        to_host = target is Tier.HOST
        self._rows.enter(row, RowState.SWAPPING_OUT if to_host else RowState.SWAPPING_IN)
        source, blocks = self._kv.begin_move(row, target)
        self._moves.append((row, target, source, blocks))

    def take_moves(self) -> list[Move]:
        """Moves begun since the last call, to be submitted now."""
        moves, self._moves = self._moves, []
        return moves

    def complete_move(self, move: MoveInFlight) -> None:
        """A copy has arrived; void if the row has died meanwhile."""
        if self._rows.epoch[move.row] != move.epoch:
            return
        if move.row in self.returning:
            self.returning.copied(move.row, move.target)
            return
        target = Tier.HOST if move.to_host else Tier.DEVICE
        self._kv.complete_move(move.row, target, move.source, move.target)
        stays = move.to_host and not self._rows.leaves[move.row]
        self._rows.enter(move.row, RowState.SWAPPED if stays else RowState.RUNNING)
        if move.to_host and not stays:
            self._rows.device_limit[move.row] = 0
            self._rows.leaves[move.row] = False

    def _cancel_move(self, row: int) -> None:
        for move in self._moves:
            if move[0] == row:
                self._kv.cancel_move(row, move[1], move[3], None)
        self._moves = [move for move in self._moves if move[0] != row]
        epoch = self._rows.epoch[row]
        for move in self._flight.moves.values():
            if move.row == row and move.epoch == epoch:
                target = Tier.HOST if move.to_host else Tier.DEVICE
                self._kv.cancel_move(row, target, move.target, move.step_id)

    def num_awaited(self, tier: Tier) -> int:
        """Blocks of a tier that moves under way will fill."""
        count = sum(len(blocks) for _, target, _, blocks in self._moves if target is tier)
        for move in self._flight.moves.values():
            alive = self._rows.epoch[move.row] == move.epoch
            if alive and move.to_host == (tier is Tier.HOST):
                count += len(move.target)
        return count

    # --- checks -----------------------------------------------------------------------------------

    def check(self) -> None:
        """Every held block has exactly its holders among the rows, and states are as counted.

        Raises:
            AssertionError: names the tier and the block, or the state.
        """
        for state in RowState:
            rows, counted = int((self._rows.state == int(state)).sum()), self._rows.count(state)
            assert rows == counted, f"{rows} rows {state.name}, counted {counted}"
        for tier in TIERS:
            held: Counter[int] = Counter()
            for row in self._rows.owned().tolist():
                held.update(self._rows.blocks(row, tier).tolist())
            for blocks in self.returning.on_host() if tier is Tier.HOST else ():
                held.update(blocks.tolist())
            pool = self._kv.pools[tier]
            for block, count in held.items():
                assert pool.refcount(block) == count, (
                    f"{tier.label} block {block}: {count} rows, {pool.refcount(block)} references"
                )
            assert pool.counts().held == len(held), f"{tier.label}: held blocks without a row"
        for request_id, sequence in self._by_id.items():
            placed = sequence.row is not None and self._by_row[sequence.row] is sequence
            assert placed or sequence.row is None, f"request {request_id} lost its row"
