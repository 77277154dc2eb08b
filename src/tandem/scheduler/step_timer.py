"""What steps were said to take, until it is reported what they took."""

from dataclasses import dataclass
from typing import NamedTuple

from tandem.cost.calibration import Calibrator
from tandem.cost.page_price import CopyTimes
from tandem.cost.step_prices import CohortWork, StepPrices, StepWork, TermTimes
from tandem.plan.events import StepTimes
from tandem.plan.program import OpKind, Queue, StepProgram
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.step_work import StepCounter
from tandem.scheduler.view import SchedulerView
from tandem.spec.tier import Tier


class CountedStep(NamedTuple):
    """Work of a step's main lane (None: it has none), and of the cohorts that it starts."""

    work: StepWork | None
    starts: tuple[CohortWork, ...]


@dataclass(slots=True)
class _SaidStep:
    """A step in flight.

    Attributes:
        said: by the price list as given; the CPU's part of cohorts as far as they have joined.
        joins: by lane, what the cohort's attention in the next layer is said to take.
    """

    said: TermTimes
    joins: dict[int, float]


class StepTimer:
    """Follows steps from submission to retirement, and has the price list corrected.

    Of steps in which cohorts take part only the CPU's attention is compared: how many of their
    stages run, and beside what, shows as they do.

    Args:
        resident: all layers are computed where the accelerator has them; else what its stages take
            is not what their price says, which counts the waiting for weights.
    """

    def __init__(self, prices: StepPrices, *, resident: bool) -> None:
        self.calibrator = Calibrator(prices)
        self._given, self._resident = prices, resident
        self._steps: dict[int, _SaidStep] = {}
        self._copies: dict[int, CopyTimes] = {}
        self._cohorts: dict[int, float] = {}

    def count(self, proposal: StepProposal, view: SchedulerView) -> CountedStep:
        """What a sweep will consist of, before rows are brought up to it."""
        counter = StepCounter(view, self.calibrator.prices)
        main = len(proposal.decode) or proposal.chunks or proposal.admissions
        return CountedStep(
            counter.work(proposal, ()) if main else None,
            counter.cohorts(proposal.cohort_starts),
        )

    def submitted(
        self, step: int, counted: CountedStep, started: list[int], joins: dict[int, int]
    ) -> None:
        """A sweep goes to the executor.

        Args:
            started: ids of the cohorts that begin in it. joins: of those that may join, by lane.
        """
        for name, cohort in zip(started, counted.starts, strict=True):
            self._cohorts[name] = self._given.cohort_attention_s(cohort)
        said = self._said(counted.work, alone=not (started or joins))
        host_s = said.host_s + sum(self._cohorts[name] for name in started)
        by_lane = {lane: self._cohorts[name] for lane, name in joins.items()}
        self._steps[step] = _SaidStep(said._replace(host_s=host_s), by_lane)

    def copies(self, program: StepProgram) -> None:
        """A program that copies KV blocks, and does nothing else, goes to the executor."""
        pages, into_s, out_s = self._given.pages, 0.0, 0.0
        for each in program.transfers:
            blocks = len(each.source_blocks)
            if each.target is Tier.DEVICE:
                into_s += pages.in_s(blocks)
            else:
                out_s += pages.out_s(blocks)
        self._copies[program.step_id] = CopyTimes(into_s, out_s)

    def joined(self, step: int, lane: int) -> None:
        """A cohort goes on to attend in the next layer."""
        timed = self._steps.get(step)
        if timed is not None:
            host_s = timed.said.host_s + timed.joins.get(lane, 0.0)
            timed.said = timed.said._replace(host_s=host_s)

    def ended(self, cohort_id: int) -> None:
        """A cohort's token has ended."""
        self._cohorts.pop(cohort_id, None)

    def retired(self, step: int, times: StepTimes | None) -> None:
        """All operations of a program have ended; without times nothing is learnt."""
        timed, copied = self._steps.pop(step, None), self._copies.pop(step, None)
        if times is None:
            return
        if timed is not None:
            self.calibrator.observe(timed.said, _measured(times))
        if copied is not None:
            self.calibrator.observe_copies(copied, _copied(times))

    def _said(self, work: StepWork | None, *, alone: bool) -> TermTimes:
        if work is None:
            return TermTimes()
        terms = self._given.terms(work)
        if not (alone and self._resident):
            return TermTimes(host_s=terms.host_s)
        return terms


def _measured(times: StepTimes) -> TermTimes:
    return TermTimes(
        _busy_s(times, Queue.ACCEL, OpKind.STAGE, OpKind.MERGE),
        _busy_s(times, Queue.ACCEL, OpKind.APPEND, OpKind.ATTEND),
        _busy_s(times, Queue.CPU, OpKind.APPEND, OpKind.ATTEND),
    )


def _copied(times: StepTimes) -> CopyTimes:
    return CopyTimes(_busy_s(times, Queue.H2D, OpKind.COPY), _busy_s(times, Queue.D2H, OpKind.COPY))


def _busy_s(times: StepTimes, queue: Queue, *kinds: OpKind) -> float:
    return sum(times.busy_s.get((queue, kind), 0.0) for kind in kinds)
