"""What rows on the host are worth: the accelerator's time that each of their tokens saves, in the
best of the ways in which they can be attended to.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandem.cost.step_prices import CohortWork, StepForecast, StepPrices, StepWork, TierWork
from tandem.plan.binding import LongArray
from tandem.scheduler.kept import Kept
from tandem.scheduler.meeting import Meeting
from tandem.scheduler.step_work import StepCounter
from tandem.scheduler.view import SchedulerView


@dataclass
class HostWorth:
    """Over one view; lives for one call of `propose`.

    Args:
        mine: rows on the accelerator that decode. hosted: all others that do, in cohorts or not.
    """

    view: SchedulerView
    prices: StepPrices
    counter: StepCounter
    mine: LongArray
    hosted: LongArray

    @Kept
    def alone(self) -> StepWork:
        """The accelerator's rows, as they are now."""
        return self.counter.decoding(self.mine)

    @Kept
    def _half_way(self) -> StepWork:
        """The same in the mean of their outputs."""
        return self.alone._replace(device=self.counter.half_way(self.mine))

    @Kept
    def _contexts(self) -> NDArray[np.float64]:
        """Of those on the host likewise."""
        return self.counter.contexts_half_way(self.hosted)

    @Kept
    def half_way_s(self) -> float:
        """Of the accelerator's step with these."""
        return self.prices.forecast(self._half_way).time_s

    def gain_s(self, coming: NDArray[np.float64]) -> float:
        """Of the accelerator's time, what each token of a row on the host saves at best if so many
        more start there, which attend to so many tokens in the mean of their outputs.

        Their tokens come one by one, beside rows that grow as they do, or are followed by others:
        all count as in the middle of their outputs. Else rows that have all just begun would seem
        to be attended to in no time, for as long as they go on.
        """
        mine, alone_s = len(self.mine), self.half_way_s
        keys = self.counter.keys_half_way(np.concatenate([self._contexts, coming]))
        ways = self.ways(self._half_way, len(self.hosted) + len(coming), keys)
        gains = [
            alone_s / mine - (each.time_s - alone_s) / (each.decoded - mine)
            for each in ways
            if each.decoded > mine
        ]
        return max(gains, default=0.0)

    def ways(self, alone: StepWork, rows: int, keys: float) -> list[StepForecast]:
        """A step in which all on the host ride along, and ones in which they are in cohorts."""
        decodes, config = alone.decodes + rows, self.view.config
        riding = alone._replace(decodes=decodes, logits=decodes, host=TierWork(rows, keys, keys))
        found = [self.prices.forecast(riding)]
        count = min(config.max_cohorts, rows)
        if not (count and config.cohort_layers):
            return found
        cohorts = (CohortWork(-(-rows // count), keys / count),) * count
        for passes in {0, config.interposition_budget if config.layers.all_resident else 0}:
            meeting = Meeting(self.counter, alone, cohorts, passes)
            if passes and not meeting.keeps_pace:
                continue
            tempos = {False, meeting.may_be_ahead}
            found += [meeting.forecast((tempo,) * count) for tempo in tempos]
        return found
