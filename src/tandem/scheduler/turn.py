"""A choice that is kept to for some sweeps: to weigh anew takes longer than anything changes."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tandem.plan.binding import LongArray
from tandem.scheduler.row_set import same_rows

if TYPE_CHECKING:
    from tandem.cost.step_prices import StepForecast, StepPrices
    from tandem.scheduler.view import SchedulerView


class Turn(NamedTuple):
    """How the last sweep was chosen, and what of.

    Attributes:
        way: as in the proposal. sweeps: for which it may still be kept to.
        decode: rows of the main lane. able: all that could have decoded in it, outside cohorts.
        passes: of cohorts. cohorts: ids of those that were under way.
        version: of the row table: once that is another, somebody has come, ended or moved, and the
            turn is over. prices: by which it was weighed. forecast: what came of it.
    """

    way: str
    sweeps: int
    decode: LongArray
    able: LongArray
    passes: int
    cohorts: tuple[int, ...]
    version: int
    prices: "StepPrices | None"
    forecast: "StepForecast | None" = None

    @property
    def resting(self) -> LongArray:
        """Rows that could have decoded, and did not."""
        if len(self.able) == len(self.decode):
            return self.decode[:0]
        waits = np.zeros(int(self.able[-1]) + 1, dtype=np.bool_)
        waits[self.able] = True
        waits[self.decode] = False
        return waits.nonzero()[0]

    def holds(self, view: "SchedulerView", prices: "StepPrices | None") -> bool:
        """Whether nobody has become ready since or ceased to be, and prices are the same."""
        return (
            self.sweeps > 0
            and self.prices is prices
            and not len(view.runnable.prefills)
            and self.cohorts == tuple(view.cohorts)
            and same_rows(self.able, view.runnable.decodes)
        )
