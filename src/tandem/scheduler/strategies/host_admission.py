"""Whether requests for which the accelerator has no room should start on the host, or wait.

Their prompts are attended there, too, where arithmetic is slow, which holds up a step; their tokens
repay that, or not, by what the best way to attend to rows on the host gains with each of them. If
a first token is wanted in time, it starts there when it has waited for as long as it could. Where a
bound on the time per token would not be kept there, only patient requests start.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

import numpy as np
from numpy.typing import NDArray

from tandem.cost.step_prices import CohortWork, StepForecast, StepPrices, StepWork, TierWork
from tandem.plan.binding import LongArray
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.sequence import Sequence
from tandem.scheduler.step_work import StepCounter
from tandem.scheduler.view import SchedulerView

_ON_HOST = 0


@dataclass
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
    _known: dict[tuple[str, ...], int] = field(default_factory=dict[tuple[str, ...], int])

    def kept(self, proposal: StepProposal) -> StepProposal:
        """With the first of those that would start on the host, as many as pay if they start
        together; whoever comes behind these waits for the accelerator.

        Nobody waits for what is not there: where nothing decodes on the accelerator, all are kept.
        """
        if self.view.config.kv_placement != "auto" or not len(self.mine):
            return proposal
        waiting = iter(self.view.waiting)  # admissions are in their order
        starting = {
            place: next(each for each in waiting if each.request_id == admission.request_id)
            for place, admission in enumerate(proposal.admissions)
            if admission.device_limit == _ON_HOST
        }
        names = tuple(each.request_id for each in starting.values())
        if names not in self._known:  # most of a view's options would start the same ones
            self._known[names] = self._most_that_pay([*starting.values()])
        if self._known[names] == len(names):
            return proposal
        place = [*starting][self._known[names]]
        return replace(proposal, admissions=proposal.admissions[:place])

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
        keys = float(self.counter.host_keys(self.hosted).sum())
        keys += prompt + (sequence.limit - prompt) / 2
        rows = len(self.hosted) + 1
        ways = self._ways(self._alone, rows, keys)
        tokens_per_s = [
            (each.decoded - self._alone.decodes) / rows / each.time_s
            for each in ways
            if each.time_s <= bound_s
        ]
        return max(tokens_per_s, default=0.0) * bound_s < 1.0

    @cached_property
    def _alone(self) -> StepWork:
        """The accelerator's rows, as they are now."""
        return self.counter.work(StepProposal(decode=self.mine), ())

    @cached_property
    def _half_way(self) -> StepWork:
        """The same in the mean of their outputs."""
        return self._alone._replace(device=self.counter.half_way(self.mine))

    @cached_property
    def _half_way_s(self) -> float:
        return self.prices.forecast(self._half_way).time_s

    def _most_that_pay(self, sequences: list[Sequence]) -> int:
        """How many, from the first one on, pay together; nobody has to alone, since what is sent to
        the host, and begun there, in each layer for one may not pay, but may for some.

        Not each number is tried, but halves, and where the needs are less: steps must not take
        longer the more wait.
        """
        needs = self._needs_s(sequences)
        halves = [(len(each.tokens) + each.limit) / 2 for each in sequences[: len(needs)]]
        contexts = np.array(halves)

        def pay(number: int) -> bool:
            return self._gain_s(contexts[:number]) > needs[number - 1]

        too_many = len(needs) + 1
        for most in _lengths(needs):
            if pay(most):
                break
            too_many = most
        else:
            return 0
        while too_many - most > 1:
            middle = (most + too_many) // 2
            most, too_many = (middle, too_many) if pay(middle) else (most, middle)
        return most

    def _needs_s(self, sequences: list[Sequence]) -> list[float]:
        """What each token must save so that those of the first one repay its prompt, those of the
        first two, and so on, if they go on to their bounds; whoever is due has nothing to repay.

        As far as that is less than all of what the accelerator takes for a token.
        """
        token_s, most, needs = self._half_way_s / len(self.mine), -inf, list[float]()
        for sequence in sequences:
            prompt = len(sequence.tokens)
            need_s = self._prompt_s(prompt) / (sequence.limit - prompt)
            if need_s > most and not self._is_due(sequence):
                most = need_s
            if most >= token_s:
                break
            needs.append(most)
        return needs

    def _is_due(self, sequence: Sequence) -> bool:
        """Whether its first token will be in time if its prompt is read on the host now, but not
        once another step has been taken, however long.
        """
        due_s = self.view.dues.get(sequence.request_id)
        if due_s is None:
            return False
        alone = self._alone
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

    def _gain_s(self, coming: NDArray[np.float64]) -> float:
        """Of the accelerator's time, what each token of a row on the host saves at best if so many
        more start there, which attend to so many tokens in the mean of their outputs.

        Their tokens come one by one, beside rows that grow as they do, or are followed by others:
        all count as in the middle of their outputs. Else rows that have all just begun would seem
        to be attended to in no time, for as long as they go on.
        """
        mine, alone_s = len(self.mine), self._half_way_s
        keys = self.counter.half_way_on_host(self.hosted, coming)
        ways = self._ways(self._half_way, len(self.hosted) + len(coming), keys)
        gains = [
            alone_s / mine - (each.time_s - alone_s) / (each.decoded - mine)
            for each in ways
            if each.decoded > mine
        ]
        return max(gains, default=0.0)

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


def _lengths(needs: list[float]) -> Iterator[int]:
    """Of prefixes that are tried, the longest first: each half of the last, and before that the
    longest one with a smaller need, if it is longer.

    Args:
        needs: of each prefix, ascending.
    """
    length = len(needs)
    while length:
        yield length
        half = (length + 1) // 2 if length > 1 else 0
        fewer = bisect_left(needs, needs[length - 1])
        if fewer > half:
            yield fewer
        length = half
