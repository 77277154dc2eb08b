"""How long sweeps take as a whole, by how they hand work to the host."""

from typing import NamedTuple

from tandem.cost.hand_overs import HandOver
from tandem.cost.learnt_hand_overs import HandOverLearner, MeasuredStep
from tandem.plan.events import StepTimes
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.strategies.auto import AWAY


class _Submitted(NamedTuple):
    kind: HandOver
    said_s: float | None


class HandOverTimer:
    """Follows sweeps from submission to retirement.

    Args:
        launch_s: from submission to the start, where nothing hides it.
    """

    def __init__(self, num_layers: int, launch_s: float) -> None:
        self.learner = HandOverLearner(num_layers)
        self._launch_s = launch_s
        self._sweeps: dict[int, _Submitted | None] = {}
        self._end_s = self._busy_s = 0.0

    def submitted(self, step: int, proposal: StepProposal) -> None:
        """A sweep goes to the executor."""
        self._sweeps[step] = _submitted(proposal)

    def retired(self, step: int, times: StepTimes | None) -> None:
        """All operations of a program have ended; without times nothing is learnt.

        A sweep's period is from the end of the one before to its own, or from its submission, if
        that came later: nobody hands anything over while there is nothing to do. Queues have been
        at work in it for no longer than the operations of all programs that ended with it took.
        """
        is_sweep, said = step in self._sweeps, self._sweeps.pop(step, None)
        if times is None:
            return
        self._busy_s += sum(times.busy_s.values())
        if not is_sweep:
            return
        busy_s, self._busy_s = self._busy_s, 0.0
        period_s = times.end_s - max(self._end_s, times.submitted_s)
        self._end_s = max(self._end_s, times.end_s)
        if said is not None and period_s > 0:
            idle_s = max(0.0, period_s - busy_s - self._launch_s)
            self.learner.observe(MeasuredStep(said.kind, period_s, said.said_s, idle_s))


def _submitted(proposal: StepProposal) -> _Submitted | None:
    """None: it is not known what kind of a step it is."""
    forecast = proposal.forecast
    if forecast is not None:
        return _Submitted(forecast.kind, forecast.time_s - forecast.hand_over_s)
    return _Submitted(HandOver.NONE, None) if proposal.way == AWAY else None
