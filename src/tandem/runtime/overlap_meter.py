"""How much of the CPU's attention the accelerator's work hides, and how long that is idle."""

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tandem.plan.executed_op import ExecutedOp
from tandem.plan.program import OpKind, ProgramTemplate, Queue
from tandem.runtime.measures import OverlapTotals

RECENT_STEPS = 64
_LAG_STEPS = 4
_KEPT_INTERVALS = 8192


@dataclass(frozen=True, slots=True)
class StepOverlap:
    """One sweep's period: from the end of the one before, on the accelerator, to its own.

    Where the engine had nothing to do in between, it begins when the sweep was submitted.

    Attributes:
        end_s: of the period, on the executor's clock.
        totals: of this period alone. The CPU's attention counts in the period in which it ends.
    """

    step_id: int
    end_s: float
    totals: OverlapTotals


@dataclass(slots=True)
class _Sums:
    """Of a period; `cpu_s` and `hidden_s` may come after its end."""

    accel_s: float = 0.0
    cpu_s: float = 0.0
    hidden_s: float = 0.0
    step_id: int = 0
    period_s: float = 0.0
    end_s: float = 0.0

    def attended(self, cpu_s: float, hidden_s: float) -> None:
        self.cpu_s += cpu_s
        self.hidden_s += hidden_s

    def overlap(self) -> StepOverlap:
        totals = OverlapTotals(1, self.period_s, self.accel_s, self.cpu_s, self.hidden_s)
        return StepOverlap(self.step_id, self.end_s, totals)


class OverlapMeter:
    """Sums up operations as they are told of, by one thread at a time; anybody may read the sums.

    Queues tell of their operations at different times, an emulator's even ahead: a period is told
    of some sweeps after its end, when all that ended in it is known.

    Attributes:
        totals: of all periods that were told.
    """

    def __init__(self) -> None:
        self._on_step: Callable[[StepOverlap], None] | None = None
        self._template: ProgramTemplate | None = None
        self._last = 0
        self.restart()

    def restart(self) -> None:
        """Forget all that was; nothing may be in flight."""
        self.totals = OverlapTotals()
        self._recent: deque[StepOverlap] = deque(maxlen=RECENT_STEPS)
        self._since_s: float | None = None
        self._worked: deque[tuple[float, float]] = deque(maxlen=_KEPT_INTERVALS)
        self._attended: deque[tuple[float, float]] = deque()
        self._ended: deque[_Sums] = deque()
        self._sums = _Sums()

    def on_step(self, listener: Callable[[StepOverlap], None]) -> None:
        """Tell of every period that ends, on the thread that tells of operations."""
        self._on_step = listener

    def recent(self) -> OverlapTotals:
        """Of the latest periods, `RECENT_STEPS` at most."""
        return OverlapTotals.sum(step.totals for step in tuple(self._recent))

    def pause(self) -> None:
        """Nothing is in flight and no request is unfinished: time is not counted until the next
        sweep is submitted.
        """
        self._settle(math.inf)
        if self._ended:
            self._ended[-1].attended(self._sums.cpu_s, self._sums.hidden_s)
        while self._ended:
            self._tell(self._ended.popleft().overlap())
        self._since_s, self._sums = None, _Sums()

    def executed(self, ran: ExecutedOp) -> None:
        """An operation has ended; an `OpListener`."""
        if ran.op.queue is Queue.ACCEL:
            self._accelerator(ran)
        elif ran.op.queue is Queue.CPU and ran.op.kind is OpKind.ATTEND and ran.lanes:
            self._attended.append((ran.start_s, ran.end_s))
            if self._worked:
                self._settle(self._worked[-1][1])

    def _accelerator(self, ran: ExecutedOp) -> None:
        start_s, end_s, worked = ran.start_s, ran.end_s, self._worked
        if self._since_s is None:
            self._since_s = ran.submitted_s
        self._sums.accel_s += end_s - start_s
        if worked and worked[-1][1] >= start_s:
            worked[-1] = (worked[-1][0], max(end_s, worked[-1][1]))
        else:
            worked.append((start_s, end_s))
        self._settle(end_s)
        if ran.program.lanes and self._is_last(ran):
            self._end_period(ran, self._since_s)

    def _settle(self, known_s: float) -> None:
        """Compare with the accelerator what ended while its work is known."""
        while self._attended and self._attended[0][1] <= known_s:
            start_s, end_s = self._attended.popleft()
            while self._worked and self._worked[0][1] <= start_s:
                self._worked.popleft()  # the CPU's next attention begins later
            period = next((each for each in self._ended if each.end_s >= end_s), self._sums)
            period.attended(end_s - start_s, _overlap_s(self._worked, start_s, end_s))

    def _end_period(self, ran: ExecutedOp, since_s: float) -> None:
        ended, self._sums = self._sums, _Sums()
        ended.step_id, ended.end_s = ran.program.step_id, ran.end_s
        ended.period_s = max(0.0, ran.end_s - since_s)
        self._since_s = ran.end_s
        self._ended.append(ended)
        if len(self._ended) > _LAG_STEPS:
            self._tell(self._ended.popleft().overlap())

    def _is_last(self, ran: ExecutedOp) -> bool:
        """Of its program, on the accelerator."""
        template = ran.program.template
        if template is not self._template:
            self._template = template
            self._last = dict(template.counts).get(Queue.ACCEL, 0)
        return ran.op.ordinal == self._last

    def _tell(self, step: StepOverlap) -> None:
        self._recent.append(step)
        self.totals = OverlapTotals.sum((self.totals, step.totals))
        if self._on_step is not None:
            self._on_step(step)


def _overlap_s(intervals: Iterable[tuple[float, float]], start_s: float, end_s: float) -> float:
    shared_s = 0.0
    for begin_s, until_s in intervals:
        if begin_s >= end_s:
            break
        shared_s += max(0.0, min(end_s, until_s) - max(start_s, begin_s))
    return shared_s
