"""Every step the one of which the most useful tokens per second are predicted."""

from tandem.cost.hand_overs import NO_HAND_OVERS
from tandem.cost.step_prices import StepPrices
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.row_set import same_rows
from tandem.scheduler.rows import Runnable
from tandem.scheduler.strategies.away import away, may_be_away
from tandem.scheduler.strategies.filling import StepFiller
from tandem.scheduler.strategies.patience import hosted_overdue
from tandem.scheduler.strategies.rendezvous import Rendezvous
from tandem.scheduler.strategies.ride_along import RideAlong
from tandem.scheduler.strategies.step_options import StepOption, StepOptions
from tandem.scheduler.view import SchedulerView

AWAY = "accelerator alone, host set aside"
_WORTH_CHANGING = 1.03
"""Less than this is not worth another way: lanes that stay alike are built from the last ones."""


class Auto:
    """Chooses among what the other strategies would do: rows on the host wait, ride along (all, or
    as many as cost nothing), or cross sweeps as cohorts, with passes of their own or without.

    A prompt's token counts as much less than a generated one as the accelerator alone would take
    less for it. Of requests that the accelerator has no room for, as many start on the host, from
    the first one on, as have tokens that repay their prompts there if these start together. A
    choice is kept to for some sweeps, as long as nobody comes, ends or lacks memory. Under a bound
    on the time per token, a step that keeps it comes before others. Where nothing is known of the
    machine's times, rows on the host ride along.

    Where handing work to the host was found to take so long that the accelerator alone is faster,
    rows there are set aside until it has room for them, and nobody starts there, as long as that is
    known: steps are `gpu-only`'s.
    """

    name = "auto"
    uses_host = True

    def propose(self, view: SchedulerView, prices: StepPrices | None) -> StepProposal:
        """The best of the options; the last way unless another is better by some percent."""
        if prices is None:
            return RideAlong().propose(view, prices)
        dear = prices.hand_overs != NO_HAND_OVERS and may_be_away(view)
        if dear and view.last_way == AWAY:
            return away(view)._replace(way=AWAY)
        kept = self._kept(view, prices)
        if kept is not None:
            return kept
        options = StepOptions(view, prices)
        if options.only_one:
            return options.admitting(RideAlong().propose(options.view, prices))
        if dear and options.host_slows:
            return away(view)._replace(way=AWAY)
        found = list(options.all())
        working = [option for option in found if option.computes]
        working = working or [each for each in found if not each.chosen().empty] or found
        best = max(working, key=lambda option: _value(option, options)).chosen()
        return best._replace(sweeps=options.sweeps(best))

    def repeats(
        self, proposal: StepProposal, view: SchedulerView, prices: StepPrices | None
    ) -> bool:
        """Whether the choice is kept to."""
        if prices is None:
            return same_rows(proposal.decode, view.runnable.decodes)  # all ride along
        turn = view.turn
        if prices.hand_overs != NO_HAND_OVERS or turn is None or not turn.holds(view, prices):
            return False
        if turn.sweeps < proposal.sweeps:  # it was so before, and there is less room now
            return not hosted_overdue(view, turn.resting)
        kept = self._kept(view, prices)
        return kept is not None and same_rows(proposal.decode, kept.decode)

    @staticmethod
    def _kept(view: SchedulerView, prices: StepPrices) -> StepProposal | None:
        """The last sweep's choice again, if nothing has changed since it was weighed."""
        turn = view.turn
        if turn is None or not turn.holds(view, prices):
            return None
        if hosted_overdue(view, turn.resting):
            return None
        if view.cohorts:
            again = Rendezvous().propose(view, prices)
        else:
            rows = Runnable(turn.decode, view.runnable.prefills)
            again = StepFiller(view, uses_host=True).fill(rows)
        if not (same_rows(again.decode, turn.decode) and again.only_goes_on and again.computes):
            return None
        return again._replace(
            way=turn.way,
            sweeps=turn.sweeps - 1,
            interposed_passes=turn.passes,
            forecast=turn.forecast,
        )


def _value(option: StepOption, options: StepOptions) -> tuple[float, float]:
    """Seconds beyond the bound, negative; then useful tokens per second."""
    forecast, bound_s = option.forecast, options.view.config.tpot_bound_s
    over_s = 0.0 if bound_s is None else max(0.0, forecast.time_s - bound_s)
    rate = forecast.useful_tokens_per_s(options.prompt_weight(forecast.prompts))
    stays = option.way == options.view.last_way
    return -over_s, rate * (_WORTH_CHANGING if stays else 1.0)
