"""What has been predicted in virtual time for one question, and which of it is better."""

from collections.abc import Callable, Hashable

from tandem.planner.candidate import LEAST_COHORT_LAYERS, Candidate
from tandem.planner.footprint import Footprint
from tandem.planner.option import Option
from tandem.planner.policies import Policy
from tandem.planner.prediction import Predictor
from tandem.planner.question import Question

BETTER = 1 + 1e-6
"""Times the tokens per second of a plan, from which on another one is better."""
AS_FAST = 0.99
"""Of the most tokens per second, or the inverse of the shortest job: predictions are no finer."""


class Options:
    """Candidates with their predictions; each is predicted once."""

    def __init__(self, question: Question, footprint: Footprint, predictor: Predictor) -> None:
        self._q, self._footprint, self._predictor = question, footprint, predictor
        self._layers: int = question.movable_layers
        self._known: dict[Candidate, Option] = {}
        self._fitting: dict[Candidate, bool] = {}

    def of(self, candidate: Candidate) -> Option:
        """Predicted now if it has not been before."""
        if candidate not in self._known:
            self._known[candidate] = Option(candidate, self._predictor.predict(candidate))
        return self._known[candidate]

    @property
    def best_per_s(self) -> float:
        """Tokens per second of the best one known, in time or not; 0: there is none."""
        return max((option.tokens_per_s for option in self._known.values()), default=0.0)

    def in_time(self, option: Option) -> bool:
        """Whether it keeps the bound on time per token."""
        return self._q.allows(option.prediction.rates.worst_tpot_s)

    def possible(self, candidate: Candidate, policy: Policy) -> bool:
        """Whether a policy allows it, the model is deep enough for it, its cohorts are of use and
        have rows beside them where they need some, and it fits.
        """
        if candidate.has_cohorts:
            if not self._q.cohorts_are_of_use or self._q.model.num_layers < LEAST_COHORT_LAYERS:
                return False
            if candidate.needs_rows_beside and not candidate.device_rows:
                return False
        if not policy.allows(candidate, self._layers):
            return False
        fits = self._fitting.get(candidate)  # which many policies ask for again
        if fits is None:
            fits = self._fitting[candidate] = self._footprint.fits(candidate)
        return fits

    def better(self, best: Option | None, option: Option | None) -> Option | None:
        """The second one if it is in time and better than the first."""
        if option is None or not self.in_time(option):
            return best
        if best is None or option.tokens_per_s > best.tokens_per_s * BETTER:
            return option
        return best

    def is_hopeless(self, candidate: Candidate, best: Option) -> bool:
        """Whether it is so much slower than the best that it is not even as fast within reason, or
        breaks the bound on time per token, which one sweep in virtual time may show.
        """
        if candidate in self._known:
            return False
        closer = self._predictor.closer_bound(candidate)
        if not self._q.allows(closer.worst_tpot_s):
            return True
        return closer.job_tokens_per_s < AS_FAST * best.tokens_per_s

    def bests_by(
        self, group: Callable[[Candidate], Hashable], policy: Policy
    ) -> dict[Hashable, Option]:
        """Of those that are known, the best of each group."""
        bests: dict[Hashable, Option] = {}
        most_per_s: dict[Hashable, float] = {}
        for option in self._known.values():
            key, tokens_per_s = group(option.candidate), option.tokens_per_s
            known_per_s = most_per_s.get(key)
            if known_per_s is not None and known_per_s >= tokens_per_s:
                continue
            if self.in_time(option) and self.possible(option.candidate, policy):
                bests[key], most_per_s[key] = option, tokens_per_s
        return bests

    def as_fast_as(self, best: Option, policy: Policy) -> list[Option]:
        """Those known that are about as fast; in steps of another size only if the best one is."""
        return [
            option
            for option in self._known.values()
            if option.tokens_per_s >= AS_FAST * best.tokens_per_s
            and (best.candidate.step_tokens or not option.candidate.step_tokens)
            and self.in_time(option)
            and self.possible(option.candidate, policy)
        ]
