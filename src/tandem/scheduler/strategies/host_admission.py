"""Whether a request for which the accelerator has no room should start on the host, or wait.

Its prompt is attended there, too, where arithmetic is slow, which holds up a step; its tokens repay
that, or not, by what the best way to attend to rows on the host gains with each of them. If its
first token is wanted in time, it starts there when it has waited for as long as it could. Where a
bound on the time per token would not be kept there, only patient requests start.
"""

from dataclasses import dataclass, replace

from tandem.cost.step_prices import CohortWork, StepForecast, StepPrices, StepWork, TierWork
from tandem.plan.binding import LongArray
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.sequence import Sequence
from tandem.scheduler.step_work import StepCounter
from tandem.scheduler.view import SchedulerView

_ON_HOST = 0


@dataclass(slots=True)
class HostAdmission:
    """Weighs admissions over one view; lives for one call of `propose`.

    Args:
        mine: rows on the accelerator that decode. hosted: all others that do, in cohorts or not.
    """

    view: SchedulerView
    prices: StepPrices
    counter: StepCounter
    mine: LongArray
    hosted: LongArray

    def kept(self, proposal: StepProposal) -> StepProposal:
        """Without the first request that had better wait for the accelerator, and all behind it.

        Nobody waits for what is not there: where nothing decodes on the accelerator, all are kept.
        Nor does anybody for being the first: what is sent to the host, and begun there, in each
        layer for one would not pay, but may for all that are to start.
        """
        if self.view.config.kv_placement != "auto" or not len(self.mine):
            return proposal
        waiting = iter(self.view.waiting)  # admissions are in their order
        starting = {
            place: next(each for each in waiting if each.request_id == admission.request_id)
            for place, admission in enumerate(proposal.admissions)
            if admission.device_limit == _ON_HOST
        }
        for hosted, (place, sequence) in enumerate(starting.items(), start=1):
            if self._is_due(sequence) or self._pays(sequence, hosted):
                continue
            if hosted == 1 and self._pay_together([*starting.values()]):
                return proposal
            return replace(proposal, admissions=proposal.admissions[:place])
        return proposal

    def is_too_slow_for(self, sequence: Sequence) -> bool:
        """Whether it had better wait since its tokens would not come in time there, in the mean of
        its output, in any of the ways in which the steps are short enough for the accelerator's.

        While requests lie on the accelerator none of which decodes, what would be beside it is not
        known: it waits until it is.
        """
        bound_s = self.view.config.tpot_bound_s
        if bound_s is None or sequence.request.patient:
            return False
        if not len(self.mine):
            return True
        prompt = len(sequence.tokens)
        alone = self.counter.work(StepProposal(decode=self.mine), ())
        ways = self._beside(alone, 1, prompt + (sequence.limit - prompt) / 2)
        tokens_per_s = [
            (each.decoded - alone.decodes) / (len(self.hosted) + 1) / each.time_s
            for each in ways
            if each.time_s <= bound_s
        ]
        return max(tokens_per_s, default=0.0) * bound_s < 1.0

    def _pays(self, sequence: Sequence, coming: int) -> bool:
        """Whether what a request's tokens gain repays its prompt, if it goes on to its bound."""
        prompt = len(sequence.tokens)
        left = sequence.limit - prompt
        return left * self._gain_s(coming, prompt + left / 2) > self._prompt_s(prompt)

    def _pay_together(self, sequences: list[Sequence]) -> bool:
        """Whether each one's tokens repay its prompt if all of them start."""
        if len(sequences) == 1:
            return False
        lengths = [(len(each.tokens), each.limit - len(each.tokens)) for each in sequences]
        context = sum(prompt + left / 2 for prompt, left in lengths) / len(lengths)
        gain_s = self._gain_s(len(sequences), context)
        return all(left * gain_s > self._prompt_s(prompt) for prompt, left in lengths)

    def _is_due(self, sequence: Sequence) -> bool:
        """Whether its first token will be in time if its prompt is read on the host now, but not
        once another step has been taken, however long.
        """
        due_s = self.view.dues.get(sequence.request_id)
        if due_s is None:
            return False
        alone = self.counter.work(StepProposal(decode=self.mine), ())
        tokens, most = len(sequence.tokens), self.view.config.max_num_batched_tokens
        read = TierWork(tokens, tokens, tokens * (tokens + 1) / 2)
        read_s = self.prices.forecast(alone._replace(prompts=tokens, host=read)).time_s
        longest_s = self.prices.forecast(alone._replace(prompts=most)).time_s
        return read_s <= due_s < read_s + longest_s

    def _prompt_s(self, tokens: int) -> float:
        """What attending to a prompt on the host costs beyond doing so on the accelerator."""
        work = TierWork(tokens, tokens, tokens * (tokens + 1) / 2)
        on_host_s = self.prices.host.seconds(work) + self.prices.link.at(tokens)
        return self.prices.num_layers * max(0.0, on_host_s - self.prices.device.seconds(work))

    def _gain_s(self, coming: int, context: float) -> float:
        """Of the accelerator's time, what each token of a row on the host saves at best.

        Its tokens come one by one, beside rows that grow as it does, or are followed by others:
        those count as in the middle of their outputs, too. Else rows that have all just begun would
        seem to be attended to in no time, for as long as they go on.
        """
        mine = len(self.mine)
        alone = self.counter.work(StepProposal(decode=self.mine), ())
        alone = alone._replace(device=self.counter.half_way(self.mine))
        ways = self._beside(alone, coming, context)
        alone_s = self.prices.forecast(alone).time_s
        token_s = alone_s / mine
        gains = [
            token_s - (each.time_s - alone_s) / (each.decoded - mine)
            for each in ways
            if each.decoded > mine
        ]
        return max(gains, default=0.0)

    def _beside(self, alone: StepWork, coming: int, context: float) -> list[StepForecast]:
        """The ways in which rows on the host are attended beside the accelerator's if `coming` more
        start there.
        """
        rows = len(self.hosted) + coming
        keys = float(self.counter.host_keys(self.hosted).sum()) + coming * context
        return self._ways(alone, rows, keys)

    def _ways(self, alone: StepWork, rows: int, keys: float) -> list[StepForecast]:
        """A step in which all on the host ride along, and ones in which they are in cohorts."""
        decodes, config = alone.decodes + rows, self.view.config
        riding = alone._replace(decodes=decodes, logits=decodes, host=TierWork(rows, keys, keys))
        found = [self.prices.forecast(riding)]
        count = min(config.max_cohorts, rows)
        if not (count and config.cohort_layers):
            return found
        cohorts = (CohortWork(-(-rows // count), keys / count),) * count
        for passes in {0, config.interposition_budget if config.layers.all_resident else 0}:
            full = alone._replace(cohorts=self.counter.crossing(cohorts, passes))
            if passes and not self.prices.keeps_pace(full):
                continue
            ahead = self.counter.may_be_ahead(alone, cohorts, passes)
            for tempo in {False, ahead}:
                tempos = (tempo,) * count
                found.append(self.counter.beside_cohorts(alone, cohorts, passes, tempos))
        return found
