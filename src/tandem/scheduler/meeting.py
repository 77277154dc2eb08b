"""What is weighed of cohorts beside a main lane: all of it from what both sides have to do."""

from collections.abc import Sequence

from tandem.cost.step_prices import CohortWork, StepForecast, StepPrices, StepWork
from tandem.scheduler.step_work import StepCounter


class Meeting:
    """A main lane and cohorts, each of which may have up to `passes` passes of its own in a sweep.

    Attributes:
        may_be_ahead: whether cohorts that join ahead are ready before a sweep has waited for each
            for as long as it may: else it waits in vain.
    """

    def __init__(
        self, counter: StepCounter, main: StepWork, cohorts: Sequence[CohortWork], passes: int
    ) -> None:
        self._counter, self._main, self._cohorts, self._passes = counter, main, cohorts, passes
        prices: StepPrices = counter.prices
        self._prices = prices
        self._full = with_cohorts(main, counter.crossing(cohorts, passes))
        self._sides = prices.sides(self._full)
        self._late_s = prices.late_s(self._sides)
        # most that a sweep which all of them cross waits for the CPU
        self._wait_s = len(cohorts) * prices.max_join_wait_s
        in_flight = counter.view.config.launch_ahead_steps
        self.may_be_ahead = in_flight > 1 and self._late_s <= self._wait_s

    @property
    def keeps_pace(self) -> bool:
        """As of `StepPrices`."""
        return self._prices.keeps_pace(self._sides)

    def forecast(self, aheads: Sequence[bool]) -> StepForecast:
        """The main lane with cohorts in the mean. If some join ahead, sweeps that they cross wait
        for the CPU where it is late.

        Args:
            aheads: of each cohort, whether it does.
        """
        mean = self._counter.in_the_mean(self._cohorts, self._passes, aheads)
        found = self._prices.forecast(with_cohorts(self._main, mean))
        if not any(aheads):
            return found
        late_s = min(max(0.0, self._late_s), self._wait_s)
        crossed = sum([each.visits for each in mean])
        crossed /= sum([each.visits for each in self._full.cohorts])
        return found._replace(time_s=found.time_s + crossed * late_s)


def with_cohorts(main: StepWork, cohorts: tuple[CohortWork, ...]) -> StepWork:
    """The main lane with these beside it."""
    return StepWork(main.decodes, main.prompts, main.logits, main.device, main.host, cohorts)
