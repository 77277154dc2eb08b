"""The steps that could be taken now, each with what it is predicted to take and to bring."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tandem.cost.step_prices import StepForecast, StepPrices, StepWork
from tandem.plan.binding import LongArray
from tandem.scheduler.meeting import Meeting
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.rows import Runnable
from tandem.scheduler.sequence import Sequence
from tandem.scheduler.step_work import StepCounter
from tandem.scheduler.strategies.filling import StepFiller
from tandem.scheduler.strategies.host_admission import HostAdmission
from tandem.scheduler.strategies.host_worth import HostWorth
from tandem.scheduler.strategies.patience import (
    cohort_overdue,
    hosted_overdue,
    waiting_sweeps,
)
from tandem.scheduler.strategies.rendezvous import Rendezvous
from tandem.scheduler.strategies.ride_along import RideAlong
from tandem.scheduler.view import SchedulerView

ALONE, RIDE, RIDE_SOME, MEET, PASS = (
    "accelerator alone", "ride-along", "ride-along, in turns", "rendezvous", "asymmetric",
)  # fmt: skip
_TURN_SWEEPS = 8
_PASSES_TRIED = 3  # the whole budget, and halves of it


class StepOption(NamedTuple):
    """A step that could be taken: what it proposes is put together only if it is chosen.

    Attributes:
        proposal: as a strategy made it, but for what follows. starts: whether its cohorts do.
    """

    way: str
    proposal: StepProposal
    forecast: StepForecast
    joins: tuple[int, ...] = ()
    starts: bool = False
    passes: int = 0
    ahead: bool = False

    @property
    def computes(self) -> bool:
        """True if a sweep would run."""
        started = self.starts and self.proposal.cohort_starts
        return bool(self.proposal.has_main or started or self.joins)

    def chosen(self) -> StepProposal:
        """The whole proposal."""
        given = self.proposal
        return given._replace(
            way=self.way,
            cohort_starts=given.cohort_starts if self.starts else (),
            cohort_joins=self.joins,
            interposed_passes=self.passes,
            starts_ahead=self.ahead,
            forecast=self.forecast,
        )


@dataclass(slots=True)
class StepOptions:
    """Lists the options of one view; lives for one call of `propose`.

    Attributes:
        hosted, mine: rows that could decode, outside cohorts, with keys on the host or without;
            ascending.
    """

    view: SchedulerView
    prices: StepPrices
    hosted: LongArray = field(init=False)
    mine: LongArray = field(init=False)
    _counter: StepCounter = field(init=False)
    _overdue: bool = field(init=False)
    _weighing: HostAdmission | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        decodes = self.view.runnable.decodes
        on_host = self.view.hosted(decodes)
        self.hosted, self.mine = decodes[on_host], decodes[~on_host]
        self._counter = StepCounter(self.view, self.prices)
        self._overdue = hosted_overdue(self.view, self.hosted)
        bounded = self.view.config.tpot_bound_s is not None
        waits = self._host_admission().is_too_slow_for if bounded else None
        self.view = self.view._replace(
            weighs_times=True, waits_for_device=waits, is_left_out=self._is_left_out
        )

    @property
    def only_one(self) -> bool:
        """Whether nothing on the host is to be decided about."""
        return not (len(self.hosted) or self.view.cohorts)

    def admitting(self, proposal: StepProposal) -> StepProposal:
        """With the requests that had better wait left out."""
        if all(admission.device_limit for admission in proposal.admissions):
            return proposal  # none would start on the host
        return self._host_admission().kept(proposal)

    def _is_left_out(self, sequence: Sequence) -> bool:
        return self._host_admission().never_repays(sequence)

    def _host_admission(self) -> HostAdmission:
        if self._weighing is None:
            self._weighing = HostAdmission(self._worth())
        return self._weighing

    def _worth(self) -> HostWorth:
        """Of all rows on the host."""
        crossing = [cohort.rows.rows for cohort in self.view.cohorts.values()]
        hosted = np.concatenate([self.hosted, *crossing])
        return HostWorth(self.view, self.prices, self._counter, self.mine, hosted)

    @property
    def host_slows(self) -> bool:
        """Whether the accelerator alone makes more tokens per second of the rows that it has room
        for than it does of all, in any of the ways in which those on the host may be attended to.
        """
        worth = self._worth()
        if not len(worth.hosted):
            return False
        keys = float(self._counter.host_keys(worth.hosted).sum())
        ranked = self.view.by_rank(np.concatenate([worth.mine, worth.hosted]))
        alone = self.prices.forecast(self._counter.all_here(ranked)).useful_tokens_per_s(0.0)
        ways = worth.ways(worth.alone, len(worth.hosted), keys)
        return all(way.useful_tokens_per_s(0.0) < alone for way in ways)

    def sweeps(self, proposal: StepProposal) -> int:
        """For how many more a proposal may be kept to: for rows that ride in turns, so that all
        have had theirs in half of the time after which one would have waited for long.
        """
        cohorts = self.view.cohorts
        if proposal.way == RIDE_SOME and not cohorts:
            riding = max(1, len(proposal.decode) - len(self.mine))
            each = waiting_sweeps(self.view) * riding // len(self.hosted) // 2
            return max(1, min(_TURN_SWEEPS, each)) - 1
        going = proposal.cohort_joins if cohorts else proposal.way in (ALONE, RIDE)
        stays = not cohorts or proposal.way == MEET or proposal.way.startswith(PASS)
        return _TURN_SWEEPS - 1 if going and stays else 0

    def prompt_weight(self, prompts: int) -> float:
        """What a token of a prompt is worth, where a generated one is worth 1: as much less as the
        accelerator alone takes less for it, among `prompts`, than for one of those it decodes.
        """
        rows = self.mine if len(self.mine) else self.hosted
        if not (len(rows) and prompts):
            return 1.0
        return self._counter.prompt_weight(rows, prompts)

    def all(self) -> Iterator[StepOption]:
        """Each once; who has waited for long is left out of none."""
        meet = self.admitting(Rendezvous().propose(self.view, self.prices))
        main = self._counter.work(meet, ())
        forecast, crossing = self.prices.forecast, self._counter.under_way
        cohorts = self._counter.in_the_mean(crossing, 0, self._tempos)
        if meet.has_main and not (self._overdue or cohort_overdue(self.view)):
            yield StepOption(ALONE, meet, forecast(main))
        if len(self.hosted):
            joins = meet.cohort_joins
            ride = self.admitting(RideAlong().propose(self.view, self.prices))
            work = self._counter.work(ride, cohorts)
            yield StepOption(RIDE, ride, forecast(work), joins)
            some = self._some_of_them(ride, main)
            if some is not None:
                some = self.admitting(some)
                work = self._counter.work(some, cohorts)
                yield StepOption(RIDE_SOME, some, forecast(work), joins)
        yield from self._meetings(meet, main)

    # --- cohorts ----------------------------------------------------------------------------------

    def _meetings(self, meet: StepProposal, main: StepWork) -> Iterator[StepOption]:
        """Cohorts go on, and one starts if there is room for it."""
        config = self.view.config
        possible = config.max_cohorts > 0 and len(config.cohort_layers) > 0
        starting = self._starting() if possible else []
        if not (starting or self.view.cohorts):
            return
        if len(self.hosted) and not starting and self._overdue:
            return  # all cohorts are under way, and who is in none has waited for long
        counter = self._counter
        crossing = (*counter.under_way, *counter.cohorts(starting))
        for passes in (0, *self._passes()):
            meeting = Meeting(counter, main, crossing, passes)
            if passes and not meeting.keeps_pace:
                continue
            way, joins = f"{PASS} {passes}" if passes else MEET, meet.cohort_joins
            # whether those that start may join ahead, and whether they may not
            for ahead in (True, False) if starting and meeting.may_be_ahead else (False,):
                forecast = meeting.forecast((*self._tempos, *(ahead for _ in starting)))
                yield StepOption(way, meet, forecast, joins, True, passes, ahead)

    @property
    def _tempos(self) -> list[bool]:
        """Of each cohort that is under way, whether it joins ahead."""
        return [cohort.ahead for cohort in self.view.cohorts.values()]

    def _passes(self) -> Iterator[int]:
        config = self.view.config
        most = config.interposition_budget if config.layers.all_resident else 0
        for halved in range(_PASSES_TRIED):
            if most >> halved:
                yield most >> halved

    def _starting(self) -> list[LongArray]:
        """Rows of the cohorts that this step and the next ones would start: one at a time, each
        once its rows' tokens are known, neither of which is a reason to do otherwise.
        """
        config, rows = self.view.config, self.view.by_rank(self.hosted)
        room, most = config.max_cohorts - len(self.view.cohorts), config.max_cohort_rows
        return [rows[i * most : (i + 1) * most] for i in range(room) if len(rows) > i * most]

    # --- rows that ride in turns ------------------------------------------------------------------

    def _some_of_them(self, ride: StepProposal, main: StepWork) -> StepProposal | None:
        """As many as the CPU attends to while the accelerator does its own part; who has waited
        longest comes first, so that all have their turn.
        """
        riding = ride.decode[self.view.rows.num_host_blocks[ride.decode] > 0]
        oldest = riding[np.argsort(self.view.rows.last_step[riding], kind="stable")]
        host, link = self.prices.host, self.prices.link
        window_s = self.prices.device.seconds(main.device)
        ahead = np.arange(1, len(oldest) + 1)
        ends_s = host.start_s + np.cumsum(self._counter.host_keys(oldest)) * host.key_s
        ends_s += ahead * host.query_s + np.interp(ahead, link.sizes, link.seconds)
        fitting = int(np.searchsorted(ends_s, window_s, side="right"))
        if self._overdue:
            fitting = max(1, fitting)
        if not 0 < fitting < len(oldest):
            return None
        rows = np.sort(np.concatenate([self.mine, oldest[:fitting]]))
        filler = StepFiller(self.view, uses_host=True)
        return filler.fill(Runnable(rows, self.view.runnable.prefills))
