"""Pipelining where APEX's inequality says that it pays, otherwise asynchronous overlap."""

from collections.abc import Callable

from tandem.cost.apex.inequality import (
    DecodeTimes,
    PrefillTimes,
    decode_pipelining_pays,
    mixed_pipelining_pays,
    mixed_pipelining_pays_as_published,
)
from tandem.cost.apex.overlap import MIN_HOST_ROWS_PER_ACCELERATOR_ROW
from tandem.cost.step_prices import StepPrices, StepWork
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.step_work import StepCounter
from tandem.scheduler.strategies.one_batch import or_one_batch
from tandem.scheduler.strategies.patience import hosted_overdue
from tandem.scheduler.strategies.rendezvous import Rendezvous
from tandem.scheduler.strategies.tempo import with_tempo
from tandem.scheduler.view import SchedulerView


class Apex:
    """Algorithm 1, corrected: rows on the host cross sweeps as cohorts, with passes beside every
    layer where two sub-batches are predicted to beat the accelerator alone, else without.

    Left out is the rule that there be eight rows on the host for each on the accelerator, since
    who lies on the host would wait for ever below it. Where nobody decodes on the accelerator all
    ride along if that is faster. Without prices it overlaps.
    """

    name = "apex"
    uses_host = True
    may_wait = True
    """As one batch of rows on the host, if nobody else decodes."""

    def propose(self, view: SchedulerView, prices: StepPrices | None) -> StepProposal:
        """Rendezvous' proposal, with passes if the inequality holds."""
        proposal = Rendezvous().propose(view, prices)
        if prices is None:
            return proposal
        counter = StepCounter(view, prices)
        if not view.config.layers.all_resident:
            return with_tempo(proposal, counter)
        alone, mixed = counter.decoding(proposal.decode), counter.work(proposal, ())
        passes = view.config.interposition_budget
        if passes and _pays(alone, mixed, prices, self._mixed_pays):
            proposal = proposal._replace(interposed_passes=passes)
        chosen = with_tempo(proposal, counter)
        return or_one_batch(chosen, counter) if self.may_wait else chosen

    @staticmethod
    def _mixed_pays(decode: DecodeTimes, prefill: PrefillTimes) -> bool:
        """With prompts beside the rows that decode."""
        return mixed_pipelining_pays(decode, prefill)


class ApexAsPublished(Apex):
    """Algorithm 1 as it is printed, to be compared with: with prompts its window grows and its
    cycle does not; and no cohort starts of fewer than eight rows on the host for each on the
    accelerator, but for those who have waited for long, who would wait for ever.
    """

    name = "apex-published"
    may_wait = False

    def propose(self, view: SchedulerView, prices: StepPrices | None) -> StepProposal:
        """As above, but for cohorts of too few."""
        proposal = super().propose(view, prices)
        decodes = view.runnable.decodes
        on_host = view.hosted(decodes)
        crossing = sum(len(cohort.rows.rows) for cohort in view.cohorts.values())
        hosted = int(on_host.sum()) + crossing
        few = hosted < MIN_HOST_ROWS_PER_ACCELERATOR_ROW * int((~on_host).sum())
        if not few or not proposal.has_main or hosted_overdue(view, decodes[on_host]):
            return proposal
        return proposal._replace(cohort_starts=())

    @staticmethod
    def _mixed_pays(decode: DecodeTimes, prefill: PrefillTimes) -> bool:
        return mixed_pipelining_pays_as_published(decode, prefill)


def _pays(
    alone: StepWork,
    mixed: StepWork,
    prices: StepPrices,
    mixed_pays: Callable[[DecodeTimes, PrefillTimes], bool],
) -> bool:
    if not prices.device.key_s or not prices.host.key_s:
        return False
    decode = DecodeTimes(
        linear_s=prices.layer.at(alone.decodes),
        attention_s=prices.device.seconds(alone.device),
        accelerator_tokens_per_s=1 / prices.device.key_s,
        host_tokens_per_s=1 / prices.host.key_s,
    )
    if not alone.decodes:
        return True  # nothing else is attended to that passes would hold up
    if not mixed.prompts:
        return decode_pipelining_pays(decode)
    prefill = PrefillTimes(
        linear_s=prices.layer.at(mixed.decodes + mixed.prompts),
        attention_s=prices.device.seconds(mixed.device),
    )
    return mixed_pays(decode, prefill)
