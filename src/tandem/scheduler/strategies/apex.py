"""Pipelining where APEX's inequality says that it pays, otherwise asynchronous overlap."""

from dataclasses import replace

from tandem.cost.apex.inequality import (
    DecodeTimes,
    PrefillTimes,
    decode_pipelining_pays,
    mixed_pipelining_pays,
)
from tandem.cost.step_prices import StepPrices, StepWork
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.step_work import StepCounter
from tandem.scheduler.strategies.rendezvous import Rendezvous
from tandem.scheduler.strategies.tempo import with_tempo
from tandem.scheduler.view import SchedulerView


class Apex:
    """Algorithm 1, corrected: rows on the host cross sweeps as cohorts, with passes beside every
    layer where two sub-batches are predicted to beat the accelerator alone, else without.

    Left out is the rule that there be eight rows on the host for each on the accelerator, since
    who lies on the host would wait for ever below it. Without prices it overlaps.
    """

    name = "apex"
    uses_host = True

    def propose(self, view: SchedulerView, prices: StepPrices | None) -> StepProposal:
        """Rendezvous' proposal, with passes if the inequality holds."""
        proposal = Rendezvous().propose(view, prices)
        if prices is None:
            return proposal
        if not view.config.layers.all_resident:
            return with_tempo(proposal, view, prices)
        counter = StepCounter(view, prices)
        alone = counter.work(StepProposal(decode=proposal.decode), ())
        mixed = counter.work(proposal, ())
        passes = view.config.interposition_budget if _pays(alone, mixed, prices) else 0
        return with_tempo(replace(proposal, interposed_passes=passes), view, prices)


def _pays(alone: StepWork, mixed: StepWork, prices: StepPrices) -> bool:
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
    return mixed_pipelining_pays(decode, prefill)
