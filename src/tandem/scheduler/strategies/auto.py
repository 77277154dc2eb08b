"""Every step the one of which the most useful tokens per second are predicted."""

from tandem.cost.step_prices import StepPrices
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.strategies.ride_along import RideAlong
from tandem.scheduler.strategies.step_options import StepOption, StepOptions
from tandem.scheduler.view import SchedulerView

_WORTH_CHANGING = 1.03
"""Less than this is not worth another way: lanes that stay alike are built from the last ones."""


class Auto:
    """Chooses among what the other strategies would do: rows on the host wait, ride along (all, or
    as many as cost nothing), or cross sweeps as cohorts, with passes of their own or without.

    A prompt's token counts as much less than a generated one as the accelerator alone would take
    less for it. A request that the accelerator has no room for starts on the host if its tokens
    repay its prompt there. Under a bound on the time per token, a step that keeps it comes before
    others. Where nothing is known of the machine's times, rows on the host ride along.
    """

    name = "auto"
    uses_host = True

    def propose(self, view: SchedulerView, prices: StepPrices | None) -> StepProposal:
        """The best of the options; the last way unless another is better by some percent."""
        if prices is None:
            return RideAlong().propose(view, prices)
        options = StepOptions(view, prices)
        if options.only_one:
            return options.admitting(RideAlong().propose(view, prices))
        found = list(options.all())
        working = [option for option in found if option.proposal.computes]
        working = working or [each for each in found if not each.proposal.empty] or found
        return max(working, key=lambda option: _value(option, options)).proposal


def _value(option: StepOption, options: StepOptions) -> tuple[float, float]:
    """Seconds beyond the bound, negative; then useful tokens per second."""
    forecast, bound_s = option.forecast, options.view.config.tpot_bound_s
    over_s = 0.0 if bound_s is None else max(0.0, forecast.time_s - bound_s)
    rate = forecast.useful_tokens_per_s(options.prompt_weight(forecast.prompts))
    stays = option.proposal.way == options.view.last_way
    return -over_s, rate * (_WORTH_CHANGING if stays else 1.0)
