"""Rows with KV on the host cross sweeps as cohorts, joining where they stand (APEX section 4)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tandem.plan.binding import LongArray
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.rows import Runnable
from tandem.scheduler.strategies.filling import StepFiller
from tandem.scheduler.view import SchedulerView

if TYPE_CHECKING:
    from tandem.cost.step_prices import StepPrices
    from tandem.scheduler.cohort import Cohort


class Rendezvous:
    """Decodes of rows with host KV form cohorts; the device's sweep never waits for them longer
    than `max_join_wait_s`. Prefills ride along.
    """

    name = "rendezvous"
    uses_host = True

    def propose(self, view: SchedulerView, prices: "StepPrices | None") -> StepProposal:
        """Fill the main lane with device rows and prefills; start and join cohorts."""
        del prices  # memory and rank decide
        return self.with_passes(view, 0)

    def with_passes(
        self, view: SchedulerView, passes: int, *, starts: bool = True, ahead: bool = False
    ) -> StepProposal:
        """Likewise, with up to so many passes of each cohort's own.

        Args:
            starts: whether a cohort does; what it would take of memory is set aside anyhow.
            ahead: as `StepProposal.starts_ahead`.
        """
        rows, prefills = view.runnable
        hosted = view.hosted(rows)
        config = view.config
        bounded = 0 < config.max_sampled_rows < config.max_num_seqs
        joins, ending = joining(view.cohorts.values(), one_ends=bounded)
        filler = StepFiller(view, uses_host=True, crosses=True, ending=ending)
        started = self._starts(view, rows[hosted], filler)
        main = Runnable(rows[~hosted], prefills)
        return filler.fill(main, started if starts else (), joins, passes, ahead=ahead)

    def _starts(
        self, view: SchedulerView, rows: LongArray, filler: StepFiller
    ) -> tuple[LongArray, ...]:
        """One new cohort of rows whose token is known, if there is room for one."""
        if len(view.cohorts) >= view.config.max_cohorts or not len(rows):
            return ()
        ready = view.by_rank(rows[view.rows.pending[rows] == 0])
        members = filler.reserve(ready[: view.config.max_cohort_rows])
        return (members,) if len(members) else ()


def joining(cohorts: "Iterable[Cohort]", *, one_ends: bool) -> tuple[tuple[int, ...], int]:
    """Ids of those that join the next sweep, and rows of those of them whose tokens end with it.

    Args:
        one_ends: there is room for the logits of one of them only; others end a sweep later.
    """
    joins: list[int] = []
    ending = 0
    for cohort in cohorts:
        if not cohort.may_join:
            continue
        if cohort.ends_next:
            if ending and one_ends:
                continue
            ending += len(cohort.rows)
        joins.append(cohort.cohort_id)
    return tuple(joins), ending
