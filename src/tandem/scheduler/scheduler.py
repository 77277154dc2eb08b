"""The scheduler: owner of all mutable scheduling state (contract 13)."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tandem.memory.pool import BlockPool
from tandem.memory.prefix_cache import PrefixCache
from tandem.plan.events import Event
from tandem.plan.program import StepProgram
from tandem.scheduler.admission import check_fits, make_sequence
from tandem.scheduler.config import SchedulerConfig
from tandem.scheduler.in_flight import Flight
from tandem.scheduler.kv_manager import NO_BLOCKS, BlockNeed, KVManager
from tandem.scheduler.observer import Observer
from tandem.scheduler.optional_parts import (
    first_token_rule,
    hand_over_timer,
    preemption_rule,
    step_timer,
    third_tier,
    two_tiers,
)
from tandem.scheduler.outputs import StepOutputs
from tandem.scheduler.placement import renewed_split_share, split_share
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.rows import RowState, RowTable
from tandem.scheduler.running import Running
from tandem.scheduler.seating import Seating
from tandem.scheduler.step_compiler import CompilerMaker, StepCompiler
from tandem.scheduler.view import SchedulerView
from tandem.scheduler.waiting import WaitingQueue
from tandem.spec.errors import OverloadError, RequestError
from tandem.spec.request import EngineRequest
from tandem.spec.tier import Tier

if TYPE_CHECKING:
    from tandem.cost.step_prices import StepPrices
    from tandem.memory.disk_index import DiskIndex
    from tandem.plan.page_jobs import PageJob, PageJobDone
    from tandem.scheduler.cohort import Cohort
    from tandem.scheduler.prefix_tiers import PrefixTiers
    from tandem.scheduler.step_timer import CountedStep
    from tandem.scheduler.strategies.base import Strategy
    from tandem.scheduler.turn import Turn

_MAX_ROUNDS = 16


class Proposed(NamedTuple):
    """What a strategy proposed over a view."""

    proposal: StepProposal
    view: SchedulerView


class Scheduler:
    """Turns requests into step programs and events into outputs.

    Online and simulated runs share this class; it reads no clock and touches no device.

    Args:
        pools: block pools per tier; both tiers must be present, either may be of size zero.
        eos_ids: tokens that end a sequence unless it ignores them.
        publish_moved: see `KVManager`.
        prices: by which strategies may compare steps; None: nothing is known of their times.
        clock: seconds; by which a bound on first tokens is kept, and for nothing else.
        stored: what is on the disk below the lowest tier that caches prefixes; None: there is none.
        compiler: makes programs of what has been decided.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        strategy: "Strategy",
        pools: dict[Tier, BlockPool],
        *,
        vocab_size: int,
        eos_ids: tuple[int, ...] = (),
        enable_prefix_caching: bool = True,
        publish_moved: bool = True,
        prices: "StepPrices | None" = None,
        clock: Callable[[], float] | None = None,
        stored: "DiskIndex | None" = None,
        compiler: CompilerMaker = StepCompiler,
    ) -> None:
        self.config = config = replace(config, split_share=split_share(prices))
        self.strategy, self.prices = strategy, prices
        self._vocab_size, self._eos_ids = vocab_size, eos_ids
        max_blocks = -(-config.max_model_len // config.block_size) + 1
        self.rows = RowTable(config.max_num_seqs, max_blocks)
        self._facts = self.rows.read_only()
        prefix = PrefixCache(pools, config.block_size, enabled=enable_prefix_caching)
        self.kv = KVManager(
            self.rows, pools, prefix, config.block_size, publish_moved=publish_moved
        )
        self.waiting = WaitingQueue()
        self.flight = Flight()
        self.cohorts: dict[int, Cohort] = {}
        mode, rule = config.preemption_mode, preemption_rule(config, prices)
        most = config.most_overtaken
        self.running = Running(
            self.rows, self.kv, self.waiting, self.flight, mode, rule, most_overtaken=most
        )
        sequence_of = self.running.sequence_of
        self._compiler = compiler(config, self.rows, self.flight, sequence_of)
        self.tiers = two_tiers(config, self.kv, prices) if publish_moved else None
        self.disk = third_tier(config, self.kv, prices, self.tiers, stored)
        self.timer = step_timer(config, prices)
        self.hand_overs = hand_over_timer(config, strategy, prices)
        self._base_prices = prices  # without hand-overs
        self._clock = clock
        self._first_tokens = first_token_rule(config, prices, clock, sequence_of)
        self._observer = Observer(
            config,
            self.rows,
            self.kv,
            self.flight,
            self.running,
            self.cohorts,
            self.tiers,
            self.timer,
            None if self.disk is None else self.disk.rule,
            self.hand_overs,
        )
        self._seating = Seating(
            self.rows, self.kv, self.waiting, self.running, self.tiers, self.disk
        )
        self._arrivals = itertools.count()
        self._last_way = ""
        self._turn: Turn | None = None
        # the last proposal was empty, and nothing has happened since that could make another one;
        # never so where the clock or other memory has a say in it
        self._waits_for_news = False
        self._may_wait = self._first_tokens is None and self.tiers is None and self.disk is None

    # --- requests ---------------------------------------------------------------------------------

    def add(self, request: EngineRequest, arrived_s: float | None = None) -> None:
        """Accept a request.

        Args:
            arrived_s: by the clock; None: it comes now.

        Raises:
            RequestError: it can never be served, or its id is taken.
            OverloadError: the queue is full.
        """
        if self.running.find(request.request_id) is not None:
            raise RequestError(f"request id '{request.request_id}' is in use; choose another")
        bound = self.config.max_num_queued_reqs
        if bound is not None and len(self.waiting) >= max(bound, 1 if self.rows.num_free else 0):
            raise OverloadError(
                f"the queue is full ({len(self.waiting)} requests wait); retry later"
            )
        arrival = next(self._arrivals)
        sequence = make_sequence(request, arrival, self.config, self._eos_ids, self._vocab_size)
        check_fits(sequence, self.config, self.kv.total(), uses_host=self.strategy.uses_host)
        if self._clock is not None:
            sequence.arrived_s = self._clock() if arrived_s is None else arrived_s
        self.kv.prefix.extend_digests(sequence.digests, np.frombuffer(sequence.tokens, np.int32))
        self.running.register(sequence)
        self.waiting.add(sequence)
        self.reconsider()

    def abort(self, request_id: str) -> bool:
        """Forget a request at any moment; False if it is unknown (or has ended)."""
        sequence = self.running.find(request_id)
        if sequence is None:
            return False
        self.running.end(sequence)
        self.reconsider()
        return True

    @property
    def has_work(self) -> bool:
        """True if any request is unfinished or anything is in flight."""
        in_flight = self.flight.busy or bool(self.cohorts) or self.is_reading
        return self.running.count > 0 or in_flight

    @property
    def is_reading(self) -> bool:
        """True if blocks are being filled from the disk."""
        return self.disk is not None and self.disk.num_reading > 0

    @property
    def is_writing(self) -> bool:
        """True if blocks are being written to the disk."""
        return self.disk is not None and self.disk.num_writing > 0

    @property
    def cached_prompt_tokens(self) -> int:
        """Prompt tokens taken from the prefix cache so far."""
        return self._seating.cached_prompt_tokens

    @property
    def orders_prompts(self) -> bool:
        """Whether who waits comes first by the clock, not by rank alone."""
        return self._first_tokens is not None

    @property
    def last_way(self) -> str:
        """What the strategy called its choice in the last sweep; empty if it has only one."""
        return self._last_way

    # --- steps ------------------------------------------------------------------------------------

    @property
    def may_submit(self) -> bool:
        """Whether `schedule` would look for something to submit."""
        flight = self.flight
        return not flight.late and flight.num_unsettled < self.config.launch_ahead_steps

    def schedule(self, proposed: Proposed | None = None) -> list[StepProgram]:
        """Programs to submit now, in order; empty if nothing can be added.

        Nothing new is submitted while logits wait for late sampling: the next forward pass would
        overwrite them.

        Args:
            proposed: for the first step, by somebody who asked the strategy just now, while nothing
                was on its way between the tiers.
        """
        self.running.overtaking.settle()  # those aborted since the last events
        if self._waits_for_news or not self.may_submit:
            return []
        programs = self._start_moves()
        if self.tiers is not None:
            programs += self._demote(self.tiers)
        for _ in range(_MAX_ROUNDS):
            if proposed is None:
                view = self.view()
                proposal = self.strategy.propose(view, self.prices)
            else:
                (proposal, view), proposed = proposed, None
            if proposal.empty:
                # with nothing in flight there would be no news
                self._waits_for_news = self._may_wait and self.flight.busy and not programs
                break
            programs += self._commit(proposal, view)
            if proposal.computes:
                break
            # a preempted row of which nothing is in flight gives its memory to this very step
            self.running.settle_drained()
            programs += self._start_moves()
        return programs

    def went_on(self, proposal: StepProposal, view: SchedulerView) -> None:
        """A step was taken by somebody else, who has brought the state there."""
        self._last_way, self._turn = proposal.way, self.turn_of(proposal, view)
        self.reconsider()

    def reconsider(self) -> None:
        """Rows, memory or requests are others than when the last step was proposed."""
        self._waits_for_news = False

    def disk_jobs(self) -> "list[PageJob]":
        """What the disk is to do now, beside the programs of `schedule`."""
        if self.disk is None:
            return []
        rows_free = self.rows.num_free
        if not self.disk.looks_up(self.waiting, rows_free, by_rank=not self.orders_prompts):
            return self.disk.begin((), rows_free=0, growing=0, decodes=0)
        view = self.view()
        growing = int(np.count_nonzero(self.rows.growing(self.config.block_size)))
        decodes = len(view.runnable.decodes)
        return self.disk.begin(view.waiting, rows_free=rows_free, growing=growing, decodes=decodes)

    def disk_done(self, ends: "list[PageJobDone]") -> None:
        """Take in what the disk has done."""
        assert self.disk is not None
        self.disk.done(ends)

    def late_sampling(self) -> list[StepProgram]:
        """Sampling programs for rows whose history has arrived since."""
        programs = self._compiler.late_sampling()
        if programs:
            self.reconsider()
        return programs

    def observe(self, events: list[Event]) -> StepOutputs:
        """Take in what the executor reports; returns news for the requests' owners."""
        outputs = self._observer.observe(events)
        if self._observer.take_news():
            self.reconsider()
        self.running.overtaking.settle()
        self._take_in_prices()
        self.running.settle_drained()
        return outputs

    def finished_cohorts(self) -> list[int]:
        """Cohorts that have ended since the last call; their buffers can be freed."""
        finished = self._observer.take_finished_cohorts()
        if self.timer is not None:
            for cohort_id in finished:
                self.timer.ended(cohort_id)
        return finished

    def view(self) -> SchedulerView:
        """What strategies may look at, as of now."""
        turn = self._turn
        if turn is not None and turn.version != self.rows.version:
            turn = None
        view = SchedulerView(
            self.config,
            self._facts,
            self.kv,
            self.waiting if self.disk is None else self.disk.ready(self.waiting),
            self.cohorts,
            not self.flight.busy,
            self.rows.runnable(),
            self.flight.next_step,
            self._last_way,
            self._filling(),
            None if self.tiers is None else self.tiers.rule,
            turn=turn,
        )
        if self._first_tokens is None or self.prices is None:
            return view
        return self._first_tokens.ordered(view, self.prices)

    def _filling(self) -> BlockNeed:
        """Blocks that are being filled for the prefix cache."""
        if self.tiers is None and self.disk is None:
            return NO_BLOCKS
        on_host = 0 if self.tiers is None else self.tiers.num_awaited
        reads = self.disk is not None and self.disk.tier is Tier.DEVICE
        return BlockNeed(self.disk.num_reading if self.disk is not None and reads else 0, on_host)

    def _start_moves(self) -> list[StepProgram]:
        moves = self.running.take_moves()
        return [self._timed(self._compiler.transfer(moves))] if moves else []

    def _demote(self, tiers: "PrefixTiers") -> list[StepProgram]:
        """Copy what the device would evict next, beside the step that comes after it."""
        copy = tiers.begin(hosted=bool(self.rows.num_host_blocks[self.rows.owned()].any()))
        if copy is None:
            return []
        source = np.array(copy.source, dtype=np.int32)
        program = self._timed(self._compiler.demotion(source, copy.target))
        tiers.started(program.step_id)
        return [program]

    def _commit(self, proposal: StepProposal, view: SchedulerView) -> list[StepProgram]:
        for row in proposal.preempt:
            self.running.preempt(row)
        for row in proposal.spill:
            self._seating.spill(row)
        for row in proposal.set_aside:
            self.running.set_aside(row)
        for row in proposal.resume:
            self.rows.enter(row, RowState.RUNNING)
            self.rows.device_limit[row] = 0
        for row in proposal.swap_in:
            self.running.come_back(row)
        for row in proposal.leave:
            self.running.leave(row)
        self.kv.grow_by_one_block(self.kv.needs_block(proposal.decode))
        chunks = [(chunk.row, chunk.num_tokens) for chunk in proposal.chunks]
        for row, tokens in chunks:
            self.kv.grow(row, tokens)
        chunks += [self._seating.admit(admission) for admission in proposal.admissions]
        for request_id in proposal.fetches:  # last: what they find may have gone to others
            self._seating.fetch(request_id)
        for members in proposal.cohort_starts:
            self.kv.grow_by_one_block(self.kv.needs_block(members))
        programs = self._start_moves()
        if proposal.computes:
            self._last_way, self._turn = proposal.way, self.turn_of(proposal, view)
            joins = [self.cohorts[i] for i in proposal.cohort_joins]
            counted = None if self.timer is None else self.timer.count(proposal, view)
            made, started = self._compiler.sweep(
                proposal.decode,
                chunks,
                proposal.cohort_starts,
                joins,
                proposal.interposed_passes,
                ahead=proposal.starts_ahead,
            )
            self.cohorts.update({cohort.cohort_id: cohort for cohort in started})
            if counted is not None:
                self._time(made[0].step_id, counted, started)
            if self.hand_overs is not None:
                self.hand_overs.submitted(made[0].step_id, proposal)
            if self.disk is not None:
                prompts = sum(tokens for _, tokens in chunks)
                self.disk.rule.submitted(made[0].step_id, prompts, len(proposal.decode))
            programs += made
        return programs

    def turn_of(self, proposal: StepProposal, view: SchedulerView) -> "Turn | None":
        """What may be kept to, once the proposal's blocks are allocated."""
        if not (proposal.sweeps and proposal.only_goes_on):
            return None
        from tandem.scheduler.turn import Turn

        return Turn(
            proposal.way,
            proposal.sweeps,
            proposal.decode,
            view.runnable.decodes,
            proposal.interposed_passes,
            tuple(self.cohorts),
            self.rows.version,
            self.prices,
            proposal.forecast,
        )

    # --- measured times ---------------------------------------------------------------------------

    def _time(self, step: int, counted: "CountedStep", started: "list[Cohort]") -> None:
        """A sweep has been compiled."""
        assert self.timer is not None
        record = self.flight.steps.get(step)
        joins = {} if record is None else record.cohorts
        self.timer.submitted(step, counted, [cohort.cohort_id for cohort in started], joins)

    def _timed(self, program: StepProgram) -> StepProgram:
        """Copies of KV blocks have been compiled."""
        if self.timer is not None:
            self.timer.copies(program)
        return program

    def _take_in_prices(self) -> None:
        """What has been learnt since counts from now on."""
        base = self._base_prices if self.timer is None else self.timer.calibrator.prices
        if self.hand_overs is None or base is None:
            if base is not self.prices and base is not None:
                self._reprice(base)
            return
        now = self.hand_overs.learner.now
        assert self.prices is not None
        if base is self._base_prices and now == self.prices.hand_overs:
            return
        self._base_prices = base
        self._reprice(base if now == base.hand_overs else replace(base, hand_overs=now))

    def _reprice(self, prices: "StepPrices") -> None:
        """From now on, everything is weighed by these."""
        self.reconsider()
        self.prices = prices
        self.config = renewed_split_share(self.config, prices)
        if self.tiers is not None:
            self.tiers.rule = replace(self.tiers.rule, prices=prices)
        if self.running.rule is not None:
            self.running.rule = replace(self.running.rule, prices=prices)
        if self.disk is not None:
            self.disk.rule.reprice(prices)

    # --- checks -----------------------------------------------------------------------------------

    def check(self) -> None:
        """Conservation and agreement of rows with pools (invariant 1).

        Raises:
            AssertionError: with the numbers.
        """
        for pool in self.kv.pools.values():
            pool.check()
            filling = self._filling()
            awaited = self.running.num_awaited(pool.tier)
            awaited += filling.host if pool.tier is Tier.HOST else filling.device
            arriving = pool.counts().in_transfer
            assert arriving == awaited, f"{pool.tier.label}: {arriving} in transfer, not {awaited}"
        self.kv.prefix.check()
        self.running.check()
        if self.tiers is not None:
            self.tiers.check()
        if self.disk is not None:
            self.disk.check()
        if not self.has_work:
            for pool in self.kv.pools.values():
                counts = pool.counts()
                assert counts.held == counts.leased == counts.in_transfer == 0, counts
