"""Fill one step: running decodes first, then chunks of running prompts, then admissions.

Progress: rows are served in order of rank, and a row that lacks memory takes it only from rows
behind it. The first in rank is therefore never held back by others for longer than their operations
in flight last, and every row becomes first in time (it fits alone, or it was refused on arrival).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from tandem.memory.prefix_cache import CachedBlock
from tandem.plan.binding import LongArray
from tandem.scheduler.kv_manager import BlockNeed
from tandem.scheduler.placement import device_limit, reserve
from tandem.scheduler.proposal import Admission, Chunk, StepProposal
from tandem.scheduler.rows import UNLIMITED, RowState, Runnable
from tandem.scheduler.sequence import Sequence
from tandem.scheduler.strategies.fetching_prefixes import worth_fetching
from tandem.scheduler.strategies.giving_way import Lacking
from tandem.scheduler.strategies.homes import is_planned_whole, on_the_host
from tandem.scheduler.strategies.tier_rules import TierRules
from tandem.scheduler.view import SchedulerView
from tandem.spec.tier import Tier

_ON_HOST = 0  # leading blocks on the device of a request that lies on the host
_MOST_PASSED = 256  # waiting requests, so that a long queue takes no longer to look at
_NOBODY = 1 << 62  # behind all ranks
_SWAPPED = RowState.SWAPPED


@dataclass(slots=True)
class StepFiller:
    """Collects one proposal; lives for one call of `propose`.

    Args:
        uses_host: KV may go to the host tier.
        crosses: rows there cross sweeps as cohorts: their tokens take many.
        ending: rows of cohorts that are sampled in this step.
    """

    view: SchedulerView
    uses_host: bool
    crosses: bool = False
    ending: int = 0
    budget: int = field(init=False)
    samples: int = field(init=False)
    lacking_rank: int = _NOBODY  # of the first row that lacks memory for its prompt
    free: BlockNeed = field(init=False)
    decode: LongArray = field(init=False)
    chunks: list[Chunk] = field(default_factory=lambda: [])
    admissions: list[Admission] = field(default_factory=lambda: [])
    fetches: list[str] = field(default_factory=lambda: [])
    coming: set[bytes] = field(default_factory=lambda: set())
    spill: list[int] = field(default_factory=lambda: [])
    preempt: list[int] = field(default_factory=lambda: [])
    leave: list[int] = field(default_factory=lambda: [])
    swap_in: list[int] = field(default_factory=lambda: [])
    resume: list[int] = field(default_factory=lambda: [])
    going_back: list[Sequence] = field(default_factory=lambda: [])  # who wait for the device
    tiers: TierRules = field(init=False)
    _stops: Callable[[Sequence], bool] | None = None  # at whom admitting may stop
    owing: int = 0  # blocks of the host, to admissions that leave for it
    growing: int | None = None  # rows that may still begin a block; None: not counted yet
    coming_growing: int = 0  # likewise of those that are being admitted

    def __post_init__(self) -> None:
        self.budget = self.view.config.max_num_batched_tokens
        self.samples = (self.view.config.max_sampled_rows or UNLIMITED) - self.ending
        self.free = self.view.free
        self.tiers = TierRules(self.view, self.uses_host, self.admissions, self.fetches)

    def reserve(self, rows: LongArray) -> LongArray:
        """Set blocks aside for one more token of each row; returns the rows that have them."""
        needing = self.view.needs_block(rows)
        if not self.preempt and self._take_one_each(needing):
            return rows
        growing = set(needing.tolist())
        kept = [
            row
            for row in rows.tolist()
            # a row further ahead may have taken this one's place just now
            if row not in self.preempt and (row not in growing or self._take(row, 1))
        ]
        return np.array(kept, dtype=np.int64)

    def fill(
        self,
        rows: Runnable,
        starts: tuple[LongArray, ...] = (),
        joins: tuple[int, ...] = (),
        passes: int = 0,
        *,
        ahead: bool = False,
    ) -> StepProposal:
        """Propose a step over the given rows in the main lane.

        Args:
            starts, joins, passes, ahead: of cohorts beside it, as `StepProposal` has them.
        """
        self._decodes(self._staying(rows.decodes))
        self.budget = min(self.budget, self.view.most_prompt_tokens)
        stalled = self._prefills(rows.prefills)
        before, leaves_room = self.view.num_before_them, True
        if not self.preempt:
            self._return_swapped()
        if before and not (stalled or self.preempt):
            leaves_room = self._admit_before(self.view.behind, before)
        stalled |= self._prefills(self.view.behind)
        if not (stalled or self.preempt):
            self._stops = self.tiers.is_left_out
            leaves_room &= self._admit(islice(self.view.waiting, before, None))
            if leaves_room and not self.crosses:
                self._use_idle_host()
        return StepProposal(
            decode=self.decode,
            chunks=tuple(self.chunks),
            admissions=tuple(self.admissions),
            fetches=tuple(self.fetches),
            spill=tuple(self.spill),
            preempt=tuple(self.preempt),
            leave=tuple(self.leave),
            swap_in=tuple(self.swap_in),
            resume=tuple(self.resume),
            cohort_starts=starts,
            starts_ahead=ahead,
            cohort_joins=joins,
            interposed_passes=passes,
        )

    def _take_one_each(self, rows: LongArray) -> bool:
        """Set one block aside for each row, if there are as many."""
        if not len(rows):
            return True
        need = self.view.one_block_each(rows)
        fits = need.fits(self.free)
        if fits:
            self.free = self.free.minus(need)
        return fits

    # --- running rows -----------------------------------------------------------------------------

    def _staying(self, rows: LongArray) -> LongArray:
        """Those of some rows that go on where they are; the others' prompts have been read on the
        device, and the host has room for them now. Until it has, they go on on the device.
        """
        if not self.uses_host:
            return rows
        leaving = self.view.rows.leaves[rows]
        if not np.count_nonzero(leaving):
            return rows
        for row in self.view.by_rank(rows[leaving]).tolist():
            need = BlockNeed(host=self.view.device_blocks(row))
            if row not in self.preempt and need.fits(self.free):
                self.free = self.free.minus(need)
                self.leave.append(row)
        return rows[~np.isin(rows, self.leave)]

    def _decodes(self, rows: LongArray) -> None:
        rows = rows[: self.budget]
        if len(rows) > self.samples:
            rows = np.sort(self.view.by_rank(rows)[: self.samples])
        self.budget -= len(rows)
        self.samples -= len(rows)
        growing = self.view.needs_block(rows)
        if not self.preempt and self._take_one_each(growing):
            self.decode = rows
            return
        held: set[int] = set()
        for row in self.view.by_rank(growing):
            if int(row) in self.preempt or not self._take(int(row), 1):
                held.add(int(row))
        held.update(self.preempt)  # of which some were not among these rows
        kept = rows[np.array([row not in held for row in rows.tolist()], dtype=np.bool_)]
        self.budget += len(rows) - len(kept)
        self.samples += len(rows) - len(kept)
        self.decode = kept

    def _prefills(self, rows: LongArray) -> bool:
        """Returns True if a row could not go on for lack of memory."""
        if not len(rows):
            return False
        stalled = False
        for row in rows.tolist():
            if self.budget <= 0:
                break
            if row in self.preempt:
                continue
            left = int(self.view.rows.remaining(np.array([row]))[0])
            samples = self.view.rows.reaches_end(row)
            wanted = min(left, self.budget)
            if wanted == left and samples and self.samples <= 0:
                wanted -= 1
            if not wanted:
                continue
            tokens = self._affordable(row, wanted)
            if tokens == 0 and not self._take(row, 1):
                stalled = True
                self.lacking_rank = min(self.lacking_rank, int(self.view.rows.order[row]))
                continue
            tokens = tokens or 1
            self.free = self.free.minus(self.view.growth(row, tokens)) if tokens > 1 else self.free
            self.chunks.append(Chunk(row, tokens))
            self.budget -= tokens
            self.samples -= samples and tokens == left
        return stalled

    def _affordable(self, row: int, wanted: int) -> int:
        """Most tokens, up to `wanted`, for which there are blocks; 0 or more than 1."""
        if self.view.growth(row, wanted).fits(self.free):
            return wanted if wanted > 1 else 0
        size, r = self.view.config.block_size, self.view.rows
        room = int(r.num_blocks[row]) * size - int(r.submitted[row])
        tokens = room
        while tokens + size < wanted and self.view.growth(row, tokens + size).fits(self.free):
            tokens += size
        return tokens if tokens > 1 else 0

    def _take(self, row: int, num_tokens: int) -> bool:
        """Set blocks aside for a row; if there are none, spill to the host or make room."""
        need = self.view.growth(row, num_tokens)
        if need.fits(self.free):
            self.free = self.free.minus(need)
            return True
        other_tier, may_spill = BlockNeed(need.host, need.device), self._may_spill(row)
        if may_spill and other_tier.fits(self.free):
            self.spill.append(row)
            self.free = self.free.minus(other_tier)
            return True
        needs = (need, other_tier) if may_spill else (need,)
        if self._leaves_next(row):
            needs = (need, BlockNeed(host=self.view.device_blocks(row)))
        self._make_room(row, needs)
        return False

    def _leaves_next(self, row: int) -> bool:
        """Whether room on the host would let a row go on: not before its prompt has been read."""
        left = self.view.rows.remaining(np.array([row]))[0]
        return bool(self.view.rows.leaves[row]) and left == 1

    def _may_spill(self, row: int) -> bool:
        """Whether a row may go on in the other tier."""
        # a split row that was swapped out lies on the host whole: it may need the device again
        free = self.uses_host and self.view.config.kv_placement in ("auto", "split")
        return free and not (self.view.rows.leaves[row] or is_planned_whole(self.view, row))

    def _make_room(self, row: int, needs: tuple[BlockNeed, ...]) -> None:
        """Preempt rows behind `row` until what is coming free covers one of `needs`, later on."""
        lacking = Lacking(self.view, row, needs)
        self.preempt += lacking.who_gives_way(self.free, self.preempt, self._is_chosen)

    def _is_chosen(self, row: int) -> bool:
        """Whether something else is proposed of a row than that it decodes."""
        changed = row in self.spill or row in self.leave
        return changed or any(chunk.row == row for chunk in self.chunks)

    # --- rows that come (back) --------------------------------------------------------------------

    def _return_swapped(self) -> None:
        """Rows that were copied to the host go on, as far as nobody ahead of them lacks memory: one
        behind them may lack what they hold of the host's.
        """
        if not self.view.rows.count(_SWAPPED):
            return
        for row in self.view.in_state(_SWAPPED).tolist():
            if self.view.rows.order[row] > self.lacking_rank:
                return
            if self._goes_on_on_host(row):
                self.resume.append(row)
                continue
            # room to go on as well, but no more than it can ever hold
            growing = len(self.view.needs_block(np.array([row], dtype=np.int64)))
            need = BlockNeed(int(self.view.rows.num_host_blocks[row]) + growing, 0)
            if not need.plus(self._reserve()).fits(self.free):
                return
            self.free = self.free.minus(need)
            self.swap_in.append(row)

    def _goes_on_on_host(self, row: int) -> bool:
        """Whether a row that was copied to the host is attended there from now on."""
        if not self.uses_host or self.view.config.kv_placement == "device":
            return False
        return not is_planned_whole(self.view, row)

    def _reserve(self) -> BlockNeed:
        """Room for rows that run already to grow a little before the next one comes."""
        if self.growing is None:
            growing = self.view.rows.growing(self.view.config.block_size)
            if self.view.config.prompts_on_device:  # those of the host do not grow on the device
                growing &= ~on_the_host(self.view)
            self.growing = int(np.count_nonzero(growing))
        return reserve(self.growing + self.coming_growing, self.view.kv.total())

    def _grows(self, sequence: Sequence) -> bool:
        """Whether a request that is being admitted will begin more blocks than it has then."""
        size = self.view.config.block_size
        return -(-len(sequence.tokens) // size) * size < sequence.limit - 1

    def _admit_before(self, rows: LongArray, count: int) -> bool:
        """Admit the first `count` of those who wait, as far as `rows` keep room for all that they
        have to read. Returns what `_admit` does.
        """
        needs = BlockNeed()
        lefts = self.view.rows.remaining(rows).tolist()
        for row, left in zip(rows.tolist(), lefts, strict=True):
            needs = needs.plus(self.view.growth(row, left))
        self.free = self.free.minus(needs)
        leaves_room = self._admit(islice(self.view.waiting, count))
        self.free = self.free.plus(needs)
        return leaves_room

    def _admit(self, waiting: Iterable[Sequence]) -> bool:
        """Returns True if nobody behind those who go back had to wait for room on the host."""
        rows_left = self.view.rows.num_free - len(self.admissions) - len(self.fetches)
        waits = self.view.rows.count(_SWAPPED) > len(self.swap_in) + len(self.resume)
        if waits and not self.tiers.planned_apart:
            return False
        # who waits for the device: requests behind them may go to the host, or patient ones alone
        passed, all_may = int(waits), True
        for sequence in waiting:
            if rows_left == 0 or self.budget <= 0 or self.samples <= 0 or passed > _MOST_PASSED:
                return False
            if not (all_may or sequence.request.patient):
                passed += 1
                continue
            limit = UNLIMITED
            if self.uses_host:
                limit = device_limit(sequence, self.view.config, self.view.kv.total())
            if self.tiers.is_whole_on_host(sequence, limit) and self._place_on_host(sequence):
                rows_left -= 1
                continue
            may_go_to_device = not passed and self.tiers.may_go_to_device(limit)
            hosted = worth_fetching(self.view, sequence, limit) if may_go_to_device else []
            if hosted and self._is_being_brought(hosted):
                return False  # another request has it brought, and will not be long
            on_device = (hosted and self._fetch(sequence, hosted)) or (
                may_go_to_device and self._place(sequence, limit, self._beside(sequence, limit))
            )
            if not on_device:
                if self.tiers.goes_back(sequence, limit, self._reserve().device):
                    self.going_back.append(sequence)
                    passed += 1
                    continue
                if limit != _ON_HOST and not self.tiers.may_go_to_host(sequence, limit):
                    return False
                if limit != _ON_HOST and self.tiers.waits_for_device(sequence):
                    # those behind are as slow there in the mean, and to weigh all would take long
                    passed, all_may = passed + 1, False
                    continue
                if (self._stops and self._stops(sequence)) or not self._place_on_host(sequence):
                    return False
            rows_left -= 1
        return True

    def _use_idle_host(self) -> None:
        """Those who would go back to the device start on the host after all where nobody else who
        waits takes the room there: sweeps have them make a token each, while they would pause.
        Those first whose KV lies there already; where times say who had better wait, beside others
        there alone, whom steps serve anyway.
        """
        there = self.tiers.count(on_host=True)
        if self.tiers.planned_apart and (there or not self.view.weighs_times):
            going, swapped = {*self.swap_in, *self.resume}, self.view.in_state(_SWAPPED).tolist()
            left = max(0, self.view.config.max_host_seqs - there)
            self.resume += [row for row in swapped if row not in going][:left]
        if self.resume:
            return  # who has no KV comes when all of these have gone on
        for sequence in self.going_back:
            rows_left = self.view.rows.num_free - len(self.admissions) - len(self.fetches)
            if rows_left == 0 or self.budget <= 0 or self.samples <= 0:
                return
            may_go = self.tiers.may_go_to_host(sequence, UNLIMITED)
            if not may_go or self.tiers.waits_for_device(sequence):
                return
            if not self._place_on_host(sequence):
                return

    def _beside(self, sequence: Sequence, limit: int) -> BlockNeed:
        """What is to stay free on the device beside a request that lies there: room for others to
        grow, and for a prompt like its own that is read there for the host, if one more may be and
        somebody lies there already: else those that stay would take turns in it.
        """
        keeps = self._reserve()
        if not self.view.config.prompts_on_device or limit != UNLIMITED:
            return keeps
        if not self.tiers.may_go_to_host(sequence, limit):
            return keeps
        if not self.tiers.count(on_host=False):
            return keeps
        count = -(-len(sequence.tokens) // self.view.config.block_size)
        return keeps.plus(BlockNeed(device=count))

    def _place_on_host(self, sequence: Sequence) -> bool:
        """Admit a request that lies on the host, if there is room. Its prompt is read on the device
        if that could ever hold it beside what is kept for others' growth, which it waits for; not
        if all but its end is cached on the host.
        """
        if not self.view.config.prompts_on_device:
            return self._place(sequence, _ON_HOST, BlockNeed())
        size, reserve = self.view.config.block_size, self._reserve()
        count = -(-len(sequence.tokens) // size)
        cached = len(self.view.matched(sequence, _ON_HOST))
        if cached + 1 >= count or count + reserve.device > self.view.kv.total().device:
            return self._place(sequence, _ON_HOST, BlockNeed(host=self._owed()))
        keeps = reserve.plus(BlockNeed(host=count + self._owed()))
        if not self._place(sequence, UNLIMITED, keeps, leaves=True):
            return False
        self.owing += count
        return True

    def _owed(self) -> int:
        """Blocks of the host that those will take which read their prompts on the device."""
        rows = self.view.rows
        leaving = rows.leaves & (rows.state == int(RowState.RUNNING))
        leaving[self.leave] = False
        there = -(-rows.known[leaving] // self.view.config.block_size)
        return self.owing + int(there.sum())

    def _place(
        self, sequence: Sequence, limit: int, keeps: BlockNeed, *, leaves: bool = False
    ) -> bool:
        """Admit a request with `limit` leading blocks on the device, if there is room.

        Args:
            keeps: what is to stay free beside. leaves: as in `Admission`.
        """
        matched = self.view.matched(sequence, limit)
        known = len(sequence.tokens)
        need = self.view.kv.admission_need(sequence, matched, limit, known)
        if not need.plus(keeps).fits(self.free):
            return False
        unread = known - len(matched) * self.view.config.block_size
        tokens = min(unread, self.budget)
        self.samples -= tokens == unread
        self.free = self.free.minus(need)
        self.admissions.append(Admission(sequence.request_id, tokens, limit, leaves))
        to_host = leaves or limit == _ON_HOST
        if not (to_host and self.view.config.prompts_on_device):
            self.coming_growing += self._grows(sequence)
        self.budget -= tokens
        return True

    def _is_being_brought(self, matched: list[CachedBlock]) -> bool:
        coming = any(entry.digest in self.coming for entry in matched)
        return coming or self.view.kv.arriving(matched)

    def _fetch(self, sequence: Sequence, matched: list[CachedBlock]) -> bool:
        """Give a request a row that waits for its prefix, if there is room for all its tokens."""
        need = self.view.kv.admission_need(sequence, matched, UNLIMITED, len(sequence.tokens))
        if not need.plus(self._reserve()).fits(self.free):
            return False
        self.free = self.free.minus(need)
        self.fetches.append(sequence.request_id)
        self.coming_growing += self._grows(sequence)
        self.coming.update(entry.digest for entry in matched if entry.tier is Tier.HOST)
        return True
