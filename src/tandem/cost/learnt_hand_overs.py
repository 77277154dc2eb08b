"""Learn what hand-overs take, from whole steps; and when what was found dear is to be tried again.

What is avoided is not measured. So a kind of steps that was found to cost something, and that has
not been taken for a while, counts as free for some sweeps again, if that costs less than a
hundredth of the time since, and half as often each time that it is found as dear as before.
"""

from collections import deque
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import NamedTuple

from tandem.cost.hand_overs import NO_HAND_OVERS, HandOver, HandOvers

_NAMES = {
    HandOver.DECODES: "decodes_s",
    HandOver.LAUNCHED: "launched_s",
    HandOver.COHORTS: "cohorts_s",
}
_IDLE_SHARE = 0.05  # of a step: less is what queues do to each other anyway
_NOTICED = 0.1  # of what is known: less changes nobody's mind
_FEWEST, _MOST = 3, 5  # observations that a median is of
_COHORT_SWEEPS = 8  # that one observation is of: cohorts join in some of them only
_PLAIN_STEPS = 16
_LOSS = 0.01  # of the time, that trials may take
_TRIAL_SWEEPS = 16
_LONGEST_PAUSE = 8  # times as long as a trial's loss asks for
_FEWEST_SWEEPS = 128  # between trials


class MeasuredStep(NamedTuple):
    """A sweep as it was.

    Attributes:
        period_s: from the end of the one before, or its submission, if that was later.
        said_s: what it was predicted to take, but for hand-overs; None: it was not predicted.
        idle_s: of the period, at least so much during which no queue was at work.
    """

    kind: HandOver
    period_s: float
    said_s: float | None
    idle_s: float


@dataclass(slots=True)
class _Kind:
    """What is known of one.

    Attributes:
        steps: of the observation that is being made. found: the last observations, in seconds of a
            step. step_s: the longest period of those that came last, one after the other.
        since_s, sweeps: all that has run since it was last taken. pause: times as long as its loss
            asks for, before it is tried again.
    """

    steps: list[MeasuredStep] = field(default_factory=list[MeasuredStep])
    found: deque[float] = field(default_factory=lambda: deque[float](maxlen=_MOST))
    step_s: float = 0.0
    since_s: float = 0.0
    sweeps: int = 0
    pause: int = 1


@dataclass(slots=True)
class _Trial:
    """A kind counts as free meanwhile."""

    kind: HandOver
    sweeps: int = 0


class HandOverLearner:
    """Follows sweeps as they end; reads no clock.

    An observation counts only where queues were idle, all at once, for more of the time than they
    are in steps of the accelerator alone: then work was handed over slowly. It is as long as the
    sweep took beyond what was predicted. Where queues are never idle for long, whatever else is
    predicted wrongly is not taken for hand-overs.

    Args:
        num_layers: of the model.

    Attributes:
        known: as it was found. now: by which to choose: what is being tried is free.
    """

    def __init__(self, num_layers: int) -> None:
        self._num_layers = num_layers
        self.known = self.now = NO_HAND_OVERS
        self._kinds = {kind: _Kind() for kind in _NAMES}
        self._plain_idle_s = deque[float](maxlen=_PLAIN_STEPS)
        self._last = HandOver.NONE
        self._trial: _Trial | None = None

    def observe(self, step: MeasuredStep) -> None:
        """A sweep has ended."""
        follows, self._last = step.kind is self._last, step.kind
        for kind, record in self._kinds.items():
            if kind is not step.kind:
                record.since_s += step.period_s
                record.sweeps += 1
        if step.kind is HandOver.NONE:
            self._plain_idle_s.append(step.idle_s)
        else:
            self._taken(step, follows=follows)
        self._try()
        self.now = self._chosen_by()

    def _taken(self, step: MeasuredStep, *, follows: bool) -> None:
        record = self._kinds[step.kind]
        longest_s = 0.0 if record.sweeps else record.step_s
        record.step_s = max(longest_s, step.period_s)
        record.since_s, record.sweeps = 0.0, 0
        if step.said_s is None or not follows:  # the first of a kind is beside the last of another
            return
        record.steps.append(step)
        if len(record.steps) < (_COHORT_SWEEPS if step.kind is HandOver.COHORTS else 1):
            return
        record.found.append(self._excess_s(record.steps))
        record.steps.clear()
        if len(record.found) >= _FEWEST:
            self._learn(step.kind, median(record.found))

    def _excess_s(self, steps: list[MeasuredStep]) -> float:
        """Of a step, in the mean."""
        usual_s = median(self._plain_idle_s) if self._plain_idle_s else 0.0
        period_s = fmean(each.period_s for each in steps)
        idle_s = fmean(each.idle_s for each in steps) - usual_s
        if idle_s < _IDLE_SHARE * period_s:
            return 0.0
        said_s = fmean(each.said_s or 0.0 for each in steps)
        return max(0.0, period_s - said_s - usual_s)

    def _learn(self, kind: HandOver, step_s: float) -> None:
        name = _NAMES[kind]
        each_s = step_s if kind is HandOver.COHORTS else step_s / self._num_layers
        before_s: float = getattr(self.known, name)
        tried = self._trial is not None and self._trial.kind is kind
        if tried:
            record = self._kinds[kind]
            dear = each_s > (1 - _NOTICED) * before_s
            record.pause = min(2 * record.pause, _LONGEST_PAUSE) if dear else 1
            self._trial = None
        if abs(each_s - before_s) > _NOTICED * before_s:
            self.known = replace(self.known, **{name: each_s})

    def _try(self) -> None:
        """Begin a trial that is due, or end one that came to nothing."""
        if self._trial is not None:
            self._trial.sweeps += 1
            if self._trial.sweeps >= _TRIAL_SWEEPS:
                self._trial = None
            return
        for kind, name in _NAMES.items():
            if getattr(self.known, name) and self._is_due(self._kinds[kind]):
                record = self._kinds[kind]
                record.found.clear()
                record.steps.clear()
                record.since_s, record.sweeps = 0.0, 0
                self._trial = _Trial(kind)
                return

    @staticmethod
    def _is_due(record: _Kind) -> bool:
        cost_s = (_FEWEST + 1) * record.step_s
        return record.sweeps >= _FEWEST_SWEEPS and _LOSS * record.since_s >= record.pause * cost_s

    def _chosen_by(self) -> HandOvers:
        if self._trial is None:
            return self.known
        return replace(self.known, **{_NAMES[self._trial.kind]: 0.0})
