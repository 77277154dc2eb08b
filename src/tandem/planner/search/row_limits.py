"""How many rows a plan must serve to be of interest, and how many it may to be in time.

A closed form for all rows at once, so that many candidates need no bound of their own. Of requests
that end in a sweep, each has had its prompt read and its tokens decoded; what weights take of a
sweep is not less for fewer of them.
"""

from math import exp, inf
from typing import NamedTuple

from tandem.planner.candidate import Candidate
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.question import Question
from tandem.planner.sweeps import Sweeps

_READ = 0.98
"""Of prompts' tokens, what is surely read in the mean, of several in a sweep."""
_WITH_PROMPTS = 1 - exp(-1)
"""Of the sweeps, at least those that read any, per prompt up to one each."""
_IN_EXCESS = 2
"""Rows whose prompts may be late."""


class Limits(NamedTuple):
    """Tokens that a sweep decodes in the mean."""

    least: float
    most: float

    @property
    def none(self) -> bool:
        """Whether no number is within them."""
        return self.most < self.least

    def exclude(self, fewest: int, most: int) -> bool:
        """Whether all numbers from `fewest` to `most` are beyond them."""
        return most < self.least or fewest > self.most


ANY = Limits(0.0, inf)
_NONE = Limits(inf, 0.0)


class RowLimits:
    """Of candidates whose sweeps go through all layers; a cohort's own may not.

    Args:
        least_per_s: tokens per second; what promises less is of no interest.
    """

    def __init__(self, question: Question, sweeps: Sweeps, least_per_s: float) -> None:
        self._q, self._sweeps, self._least_per_s = question, sweeps, least_per_s
        self._layers = question.model.num_layers
        # of more rows, prompts would be read in smaller parts than is counted on
        self._enough = question.max_num_batched_tokens / 2
        self._parts = max(1.0, question.lengths.prompt_tokens / self._enough)
        self._known: dict[tuple[Elsewhere, bool], Limits] = {}

    def of(self, elsewhere: Elsewhere, *, cohorts: bool) -> Limits:
        """With these layers elsewhere.

        Args:
            cohorts: whether some rows are of cohorts, whose attention no sweep waits for.
        """
        key = elsewhere, cohorts
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._found(elsewhere, cohorts)
        return found

    def allow(self, candidate: Candidate) -> bool:
        """Whether a candidate is within the limits, as far as that is known."""
        cohorts = candidate.has_cohorts
        if cohorts and not candidate.device_rows:
            return True
        least, most = self.of(candidate.elsewhere, cohorts=cohorts)
        return least <= candidate.served(self._layers) <= most

    def _found(self, elsewhere: Elsewhere, cohorts: bool) -> Limits:
        least, lengths = self._sweeps.least(elsewhere), self._q.lengths
        if not self._q.allows(least.whole_s):
            return _NONE
        if self._q.objective == "latency":
            return ANY
        prompt_s = _READ * lengths.prompt_tokens * self._sweeps.token_s(elsewhere)
        row_s = 0.0 if cohorts else self._sweeps.row_s()
        # what a prompt adds to sweeps, each of which takes as long as weights do in any case
        added_s = max(0.0, prompt_s - self._parts * least.whole_s)
        first_s = max(added_s, _WITH_PROMPTS * (least.with_prompts_s - least.whole_s))
        ended = self._ended(least.whole_s, first_s)
        if ended > 1:
            ended = max(1.0, self._ended(least.whole_s, added_s))
        attended_s = lengths.decode_sweeps * row_s
        added_s = max(0.0, prompt_s - self._parts * least.chain_s)
        ended = max(ended, self._ended(least.chain_s, added_s + attended_s))
        few = min(ended * lengths.decode_sweeps, self._enough)
        return Limits(few, inf if cohorts else self._most(least.whole_s, first_s))

    def _ended(self, sweep_s: float, each_s: float) -> float:
        """Requests that must end in a sweep in the mean.

        Args:
            sweep_s: that it takes in any case. each_s: what each of them adds.
        """
        if not self._least_per_s:
            return 0.0
        left = self._q.lengths.generated_tokens - self._least_per_s * each_s
        return self._least_per_s * sweep_s / left if left > 0 else inf

    def _most(self, sweep_s: float, each_s: float) -> float:
        """Rows whose sweeps keep the bound on time per token."""
        bound_s = self._q.tpot_bound_s
        if bound_s is None or not each_s:
            return inf
        ended, lengths = (bound_s - sweep_s) / each_s, self._q.lengths
        # at worst, each prompt waits for those of all other rows
        left = 1 - ended * lengths.prompt_tokens / self._enough
        if ended > 1 or left <= 0:
            return inf
        return ended * (lengths.decode_sweeps + 1) / left + _IN_EXCESS
