"""The search: candidates by a bound that is cheap, the best of them by virtual time.

Candidates come in the order of what they could achieve at most; as soon as the next one's bound is
no better than what has been found in virtual time, nothing better is left.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tandem.plan.weights import STREAM_SLOTS
from tandem.planner.candidate import Candidate
from tandem.planner.candidates import Candidates
from tandem.planner.footprint import Footprint
from tandem.planner.policies import Policy
from tandem.planner.prediction import Prediction, Predictor, Rates
from tandem.planner.question import Question
from tandem.planner.sweeps import Sweeps

_MOST_EVALUATED = 24
_MOVES = (0.93, 0.98, 1.02, 1.07)


@dataclass(frozen=True, slots=True)
class Option:
    """A candidate with its prediction."""

    candidate: Candidate
    prediction: Prediction

    @property
    def tokens_per_s(self) -> float:
        """What options are ranked by; alone, it is the inverse of latency."""
        return self.prediction.rates.tokens_per_s


class Search:
    """Finds the best option of a question under a policy."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.footprint = Footprint(question)
        self.predictor = Predictor(question, Sweeps(question, self.footprint))
        self._candidates = Candidates(question, self.footprint)
        self._options: dict[Candidate, Option] = {}
        self._bounded: dict[str, list[tuple[float, Candidate]]] = {}

    def best(self, policy: Policy, known: Iterable[Candidate] = ()) -> Option | None:
        """The best option, or None if nothing fits, or keeps the bound on time per token.

        Args:
            known: candidates to try first, as those of a smaller machine.
        """
        layers = self.question.model.num_layers
        allowed = [c for c in known if policy.allows(c, layers) and self.footprint.fits(c)]
        best = self._best_of(allowed, None)
        for option in self._best_of_kinds(policy).values():
            if best is None or option.tokens_per_s > best.tokens_per_s:
                best = option
        best = self._best_of((candidate for _, candidate in self._ordered(policy)), best)
        return None if best is None else self._improved(best, policy)

    def alternatives(self, policy: Policy, chosen: Option) -> list[Option]:
        """The best option of each other kind: strategy, and all, some or no weights streamed."""
        found = self._best_of_kinds(policy)
        found.pop(self._kind(chosen.candidate), None)
        return sorted(found.values(), key=lambda option: -option.tokens_per_s)

    def _best_of_kinds(self, policy: Policy) -> dict[tuple[str, int], Option]:
        kinds: dict[tuple[str, int], list[Candidate]] = {}
        for _, candidate in self._ordered(policy):
            kinds.setdefault(self._kind(candidate), []).append(candidate)
        best = {kind: self._best_of(members[:2], None) for kind, members in kinds.items()}
        return {kind: option for kind, option in best.items() if option is not None}

    def _kind(self, candidate: Candidate) -> tuple[str, int]:
        streamed, layers = candidate.streamed, self.question.model.num_layers
        return candidate.strategy, 0 if streamed == 0 else 2 if streamed >= layers - 1 else 1

    def _ordered(self, policy: Policy) -> list[tuple[float, Candidate]]:
        """Candidates that may keep the bound on time per token, the most promising first."""
        if policy.name not in self._bounded:
            rated = [
                (rates.tokens_per_s, candidate)
                for candidate in self._candidates.of(policy)
                if self._in_time(rates := self.predictor.bound(candidate))
            ]
            self._bounded[policy.name] = sorted(rated, key=lambda entry: -entry[0])
        return self._bounded[policy.name]

    def _in_time(self, rates: Rates) -> bool:
        bound_s = self.question.tpot_bound_s
        return bound_s is None or rates.worst_tpot_s <= bound_s

    def _best_of(self, candidates: Iterable[Candidate], best: Option | None) -> Option | None:
        evaluated = 0
        for candidate in candidates:
            bound = self.predictor.bound(candidate).tokens_per_s
            if evaluated == _MOST_EVALUATED or (best and bound <= best.tokens_per_s):
                break
            option = self._option(candidate)
            evaluated += 1
            if self._in_time(option.prediction.rates) and (
                best is None or option.tokens_per_s > best.tokens_per_s
            ):
                best = option
        return best

    def _improved(self, best: Option, policy: Policy) -> Option:
        """Small moves of the number of rows on the host, while one helps."""
        while True:
            moved = self._best_of(self._moves(best.candidate, policy), best)
            if moved is best or moved is None:
                return best
            best = moved

    def _moves(self, candidate: Candidate, policy: Policy) -> Iterator[Candidate]:
        steps = [(0, factor) for factor in _MOVES] if candidate.host_rows else []
        for layers, factor in [*steps, (-STREAM_SLOTS, 1.0), (STREAM_SLOTS, 1.0)]:
            streamed = candidate.streamed + layers
            hosted = round(candidate.host_rows * factor)
            if not 0 <= streamed <= self.question.model.num_layers:
                continue
            device = self._candidates.most_on_device(candidate.strategy, streamed, hosted)
            moved = Candidate(candidate.strategy, streamed, device, hosted)
            allowed = policy.allows(moved, self.question.model.num_layers)
            if allowed and moved.rows and self.footprint.fits(moved):
                yield moved

    def _option(self, candidate: Candidate) -> Option:
        if candidate not in self._options:
            self._options[candidate] = Option(candidate, self.predictor.predict(candidate))
        return self._options[candidate]
