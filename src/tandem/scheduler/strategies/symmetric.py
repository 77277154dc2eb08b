"""All rows on the host in two halves that take turns at each layer: symmetric pipelining."""

from typing import TYPE_CHECKING

from tandem.plan.binding import LongArray
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.rows import Runnable
from tandem.scheduler.strategies.filling import StepFiller
from tandem.scheduler.view import SchedulerView

if TYPE_CHECKING:
    from tandem.cost.step_prices import StepPrices

_HALVES = 2


class Symmetric:
    """Decodes of rows with host KV are two cohorts of equal size, which enter together. At each
    layer the accelerator is at one's linear stages while the CPU attends to the other, and it waits
    for nobody else: rows on the accelerator, and prompts, are beside them in the main lane.

    NEO section 3.1, strawman 2, and FastDecode where no row is on the accelerator. Both halves end
    a token together, and begin the next one with whoever has come meanwhile.
    """

    name = "symmetric"
    uses_host = True

    def propose(self, view: SchedulerView, prices: "StepPrices | None") -> StepProposal:
        """Fill the main lane with device rows and prefills; start both halves, or go on."""
        del prices  # memory and rank decide
        config, (rows, prefills) = view.config, view.runnable
        hosted = view.hosted(rows)
        filler = StepFiller(view, uses_host=True)
        starts = () if view.cohorts else self._halves(view, rows[hosted], filler)
        joins = tuple(c.cohort_id for c in view.cohorts.values() if c.may_join)
        passes = config.interposition_budget if config.layers.all_resident else 0
        # the halves wait for each other, so that joins keep to the order of submission
        return filler.fill(Runnable(rows[~hosted], prefills), starts, joins, passes, ahead=True)

    @staticmethod
    def _halves(view: SchedulerView, rows: LongArray, filler: StepFiller) -> tuple[LongArray, ...]:
        """The rows whose token is known, in as many cohorts as there may be, at most two."""
        config = view.config
        ready = view.by_rank(rows[view.rows.pending[rows] == 0])
        count = min(_HALVES, config.max_cohorts, len(ready))
        if not count:
            return ()
        members = filler.reserve(ready[: count * config.max_cohort_rows])
        size = max(1, -(-len(members) // count))
        return tuple(members[at : at + size] for at in range(0, len(members), size))
