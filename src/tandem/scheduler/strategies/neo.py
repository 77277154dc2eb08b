"""Two sub-batches, or the accelerator alone: NEO's choice in every step."""

import numpy as np

from tandem.cost.neo.pipeline import SubBatchTimes, accelerator_only_layer_s
from tandem.cost.neo.placing import Draft, Placing, place_host_rows
from tandem.cost.neo.step_choice import (
    StepEstimate,
    pipelines_as_published,
    pipelines_for_tokens,
)
from tandem.cost.step_prices import StepPrices, StepWork
from tandem.plan.binding import LongArray
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.row_set import same_rows
from tandem.scheduler.rows import Runnable
from tandem.scheduler.step_work import StepCounter
from tandem.scheduler.strategies.asymmetric import Asymmetric
from tandem.scheduler.strategies.filling import StepFiller
from tandem.scheduler.strategies.one_batch import or_one_batch
from tandem.scheduler.strategies.patience import overdue_rows
from tandem.scheduler.strategies.ride_along import RideAlong
from tandem.scheduler.strategies.tempo import with_tempo
from tandem.scheduler.view import SchedulerView


class Neo:
    """Section 3.2 and appendix A, repaired: each row on the host goes to batch 1, else to batch 0,
    while both inequalities hold; the outcome is compared with the accelerator alone by useful
    tokens per second.

    Batch 1 is a cohort with a pass beside every layer, batch 0 the main lane, in which the other
    rows ride along. A cohort that is under way goes on, whatever is chosen. Who has waited for long
    rides along once. All do where there is nothing to hide them, where that is faster and nobody
    decodes on the accelerator, without prices, and where not all layers are there.
    """

    name = "neo"
    uses_host = True
    may_wait = True
    """As one batch of rows on the host, if nobody else decodes."""
    launch_s = 0.0
    """What each sub-batch adds to each layer, beyond what prices know of launching."""

    def propose(self, view: SchedulerView, prices: StepPrices | None) -> StepProposal:
        """The pipeline's step, or the accelerator's alone."""
        if prices is None or not view.config.layers.all_resident:
            return RideAlong().propose(view, prices)
        decodes = view.runnable.decodes
        on_host = view.hosted(decodes)
        hosted = view.by_rank(decodes[on_host])
        alone = Asymmetric().proposed(view, starts=False)
        counter = StepCounter(view, prices)
        work = counter.work(alone, ())
        if not (work.decodes or work.prompts or view.cohorts):
            return RideAlong().propose(view, prices)
        mine, overdue = decodes[~on_host], overdue_rows(view, hosted)
        if len(overdue):
            return self._beside(view, alone, mine, overdue)
        placing = self._place(counter, prices, work, hosted)
        if self._pipelines(view, counter, prices, work, placing, mine):
            chosen = with_tempo(self._pipelined(view, alone, mine, hosted, placing), counter)
        else:
            chosen = alone if alone.computes else RideAlong().propose(view, prices)
        return or_one_batch(chosen, counter) if self.may_wait else chosen

    def repeats(
        self, proposal: StepProposal, view: SchedulerView, prices: StepPrices | None
    ) -> bool:
        """Whether each row on the host is placed as it was, and the outcome preferred likewise."""
        decodes = view.runnable.decodes
        on_host = view.hosted(decodes)
        mine, hosted = decodes[~on_host], view.by_rank(decodes[on_host])
        if prices is None or not (view.config.layers.all_resident and len(mine)):
            return same_rows(proposal.decode, decodes)  # all ride along
        if len(overdue_rows(view, hosted)):
            return False
        counter = StepCounter(view, prices)
        work = counter.decoding(mine)
        placing = self._place(counter, prices, work, hosted)
        if not self._pipelines(view, counter, prices, work, placing, mine):
            return same_rows(proposal.decode, mine)
        batch = _batches(placing)
        starting = view.rows.pending[hosted[batch == 1]] == 0
        if view.config.max_cohorts and np.count_nonzero(starting):
            return False
        return same_rows(proposal.decode, np.sort(np.concatenate([mine, hosted[batch == 0]])))

    @staticmethod
    def _beside(
        view: SchedulerView, alone: StepProposal, mine: LongArray, overdue: LongArray
    ) -> StepProposal:
        """The accelerator's step, in which those who have waited for long ride along."""
        rows = np.sort(np.concatenate([mine, overdue]))
        main = Runnable(rows, view.runnable.prefills)
        joins, passes = alone.cohort_joins, alone.interposed_passes
        return StepFiller(view, uses_host=True).fill(main, (), joins, passes)

    @staticmethod
    def _place(
        counter: StepCounter, prices: StepPrices, work: StepWork, hosted: LongArray
    ) -> Placing:
        crossing = counter.under_way
        rows, keys = sum(each.rows for each in crossing), sum(each.keys for each in crossing)
        price = prices.host
        draft = Draft(
            first_tokens=work.decodes + work.prompts,
            second_tokens=rows,
            accelerator_attention_s=prices.device.seconds(work.device),
            second_host_s=keys * price.key_s + rows * price.query_s,
        )
        times_s = counter.host_keys(hosted) * price.key_s + price.query_s
        return place_host_rows(draft, times_s.tolist(), prices.layer.at)

    def _pipelines(
        self,
        view: SchedulerView,
        counter: StepCounter,
        prices: StepPrices,
        work: StepWork,
        placing: Placing,
        mine: LongArray,
    ) -> bool:
        draft, layers = placing.draft, prices.num_layers
        prompts = work.logits - work.decodes
        batch = SubBatchTimes(
            prices.layer.at(work.decodes + work.prompts), draft.accelerator_attention_s
        )
        hosted = draft.first_tokens - work.decodes - work.prompts + draft.second_tokens
        rows = work.decodes + hosted
        weight = 1.0
        if len(mine) and work.prompts:
            weight = counter.prompt_weight(mine, work.prompts)
        pipelined_s = layers * draft.layer(prices.layer.at, self.launch_s).time_s
        alone_s = layers * accelerator_only_layer_s(batch, self.launch_s)
        return self._prefers(
            StepEstimate(pipelined_s, rows + prompts, rows, work.prompts),
            StepEstimate(alone_s, work.decodes + prompts, work.decodes, work.prompts),
            prefill_weight=weight,
            bound_s=view.config.tpot_bound_s,
        )

    @staticmethod
    def _prefers(
        pipelined: StepEstimate,
        alone: StepEstimate,
        *,
        prefill_weight: float,
        bound_s: float | None,
    ) -> bool:
        """Step 6."""
        return pipelines_for_tokens(
            pipelined, alone, prefill_weight=prefill_weight, latency_bound_s=bound_s
        )

    @staticmethod
    def _pipelined(
        view: SchedulerView,
        alone: StepProposal,
        mine: LongArray,
        hosted: LongArray,
        placing: Placing,
    ) -> StepProposal:
        batch = _batches(placing)
        filler = StepFiller(view, uses_host=True)
        second = hosted[batch == 1]
        known = second[view.rows.pending[second] == 0]
        room = len(view.cohorts) < view.config.max_cohorts
        members = filler.reserve(known[: view.config.max_cohort_rows]) if room else second[:0]
        rows = np.sort(np.concatenate([mine, hosted[batch == 0]]))
        starts = (members,) if len(members) else ()
        joins, passes = alone.cohort_joins, alone.interposed_passes
        return filler.fill(Runnable(rows, view.runnable.prefills), starts, joins, passes)


def _batches(placing: Placing) -> LongArray:
    """Of each row; -1: of neither."""
    return np.array([-1 if each is None else each for each in placing.batches], dtype=np.int64)


class NeoAsPublished(Neo):
    """The paper's own comparison, to be compared with: requests per second, whatever they compute,
    launching at 0.8 ms on any machine, no bound. What its code hangs in is mended here, too.
    """

    name = "neo-published"
    may_wait = False
    launch_s = 0.8e-3

    @staticmethod
    def _prefers(
        pipelined: StepEstimate,
        alone: StepEstimate,
        *,
        prefill_weight: float,
        bound_s: float | None,
    ) -> bool:
        del prefill_weight, bound_s
        return pipelines_as_published(pipelined, alone)
