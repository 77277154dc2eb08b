"""Whether requests for which the accelerator has no room should start on the host, or wait.

Their prompts are attended there, too, where arithmetic is slow, which holds up a step; their tokens
repay that, or not, by what the best way to attend to rows on the host gains with each of them. If
a first token is wanted in time, it starts there when it has waited for as long as it could. Where a
bound on the time per token would not be kept there, only patient requests start.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from math import inf

import numpy as np

from tandem.cost.step_prices import TierWork
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.sequence import Sequence
from tandem.scheduler.strategies.host_worth import HostWorth
from tandem.scheduler.view import SchedulerView

_ON_HOST = 0


@dataclass
class HostAdmission:
    """Weighs admissions over one view; lives for one call of `propose`.

    Args:
        worth: of rows on the host, over that view.
    """

    worth: HostWorth
    _known: dict[tuple[str, ...], int] = field(default_factory=dict[tuple[str, ...], int])

    @property
    def _view(self) -> SchedulerView:
        return self.worth.view

    def kept(self, proposal: StepProposal) -> StepProposal:
        """With the first of those that would start on the host, as many as pay if they start
        together; whoever comes behind these waits for the accelerator.

        Nobody waits for what is not there: where nothing decodes on the accelerator, all are kept.
        """
        if not self._weighs:
            return proposal
        to_host = (each for each in proposal.admissions if each.device_limit == _ON_HOST)
        names = tuple(each.request_id for each in to_host)
        if names not in self._known:  # most of a view's options would start the same ones
            self._known[names] = self._most_that_pay(self._waiting(names))
        if self._known[names] == len(names):
            return proposal
        first = names[self._known[names]]
        place = [each.request_id for each in proposal.admissions].index(first)
        return proposal._replace(admissions=proposal.admissions[:place])

    def never_repays(self, sequence: Sequence) -> bool:
        """Whether its tokens would not repay its prompt on the host if they took nothing of the
        accelerator's time: neither it nor anybody behind it is among those `kept`, whoever they
        are, and whoever comes before it is among them or not without it.
        """
        if not self._weighs or self._need_s(sequence) < self._token_s:
            return False
        return not self._is_due(sequence)

    def is_too_slow_for(self, sequence: Sequence) -> bool:
        """Whether it had better wait since its tokens would not come in time there, in the mean of
        its output, in any of the ways in which the steps are short enough for the accelerator's.

        While requests lie on the accelerator none of which decodes, what would be beside it is not
        known: it waits until it is.
        """
        bound_s = self._view.config.tpot_bound_s
        if bound_s is None or sequence.request.patient:
            return False
        if not len(self.worth.mine):
            return True
        prompt = len(sequence.tokens)
        keys = float(self.worth.counter.host_keys(self.worth.hosted).sum())
        keys += prompt + (sequence.limit - prompt) / 2
        rows = len(self.worth.hosted) + 1
        ways = self.worth.ways(self.worth.alone, rows, keys)
        tokens_per_s = [
            (each.decoded - self.worth.alone.decodes) / rows / each.time_s
            for each in ways
            if each.time_s <= bound_s
        ]
        return max(tokens_per_s, default=0.0) * bound_s < 1.0

    @property
    def _weighs(self) -> bool:
        """Whether anybody may be left out."""
        return self._view.config.kv_placement == "auto" and len(self.worth.mine) > 0

    @property
    def _token_s(self) -> float:
        """What the accelerator takes for a token."""
        return self.worth.half_way_s / len(self.worth.mine)

    def _need_s(self, sequence: Sequence) -> float:
        """What each of its tokens must save to repay its prompt, if it goes on to its bound."""
        prompt = len(sequence.tokens)
        return self.worth.prices.prompt_on_host_s(prompt) / (sequence.limit - prompt)

    def _waiting(self, names: tuple[str, ...]) -> list[Sequence]:
        """Of these ids, in their order: not the queue's, since who was preempted on the accelerator
        starts behind others.
        """
        wanted = set(names)
        some = (each for each in self._view.waiting if each.request_id in wanted)
        found = {each.request_id: each for each in islice(some, len(names))}  # it may be long
        return [found[name] for name in names]

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
            return self.worth.gain_s(contexts[:number]) > needs[number - 1]

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
        most, needs = -inf, list[float]()
        for sequence in sequences:
            if self.never_repays(sequence):
                break
            need_s = self._need_s(sequence)
            if need_s > most and not self._is_due(sequence):
                most = need_s
            needs.append(most)
        return needs

    def _is_due(self, sequence: Sequence) -> bool:
        """Whether its first token will be in time if its prompt is read on the host now, but not
        once another step has been taken, however long.
        """
        due_s = self._view.dues.get(sequence.request_id)
        if due_s is None:
            return False
        alone = self.worth.alone
        tokens, most = len(sequence.tokens), self._view.config.max_num_batched_tokens
        read = TierWork(tokens, tokens, tokens * (tokens + 1) / 2)
        read_s = self.worth.prices.forecast(alone._replace(prompts=tokens, host=read)).time_s
        longest_s = self.worth.prices.forecast(alone._replace(prompts=most)).time_s
        return read_s <= due_s < read_s + longest_s


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
