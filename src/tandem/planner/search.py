"""The search: candidates by a bound that is cheap, the best of them by virtual time.

Candidates fall into kinds. The next one to be tried is the most promising of the kind that promises
most, given how far short of its bound that kind has fallen so far. The search ends when nothing
promises more than what has been found, and then moves the best of some kinds a little.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tandem.planner.candidate import STRATEGIES, Candidate, Strategy
from tandem.planner.candidates import Candidates
from tandem.planner.elsewhere import CpuHome, Elsewhere
from tandem.planner.footprint import Footprint
from tandem.planner.lending import Lending
from tandem.planner.moves import Moves
from tandem.planner.pile import Look, Pile
from tandem.planner.policies import POLICIES, Policy
from tandem.planner.prediction import Prediction, Predictor, Rates
from tandem.planner.question import Question
from tandem.planner.schedule import Schedules
from tandem.planner.sweeps import Sweeps

_BETTER = 1 + 1e-6
_AS_FAST = 0.99
"""Of the most tokens per second, or the inverse of the shortest job: predictions are no finer."""
_WORTH_MOVING = 1.0005
_HOPELESS = 0.6
_CLOSE = 0.9
"""Of the best option found, what another kind's must reach for its moves to be tried."""


@dataclass(frozen=True, slots=True)
class _Effort:
    """How many candidates virtual time is spent on.

    Attributes:
        tries: from the piles. moves: from each start. moved_kinds: starts beside the best.
    """

    tries: int
    moves: int
    moved_kinds: int


_FULL, _REDUCED = _Effort(16, 8, 2), _Effort(5, 4, 0)

_Kind = tuple[Strategy, int, bool, CpuHome | None, bool]


@dataclass(frozen=True, slots=True)
class Option:
    """A candidate with its prediction."""

    candidate: Candidate
    prediction: Prediction

    @property
    def tokens_per_s(self) -> float:
        """Over the whole job: what options are ranked by; alone, it is the inverse of latency."""
        return self.prediction.rates.job_tokens_per_s


class _Pile(Pile):
    """With those that were tried and are in time."""

    def __init__(self, looks: Sequence[Look], reached: float) -> None:
        super().__init__(looks, reached)
        self.options: list[Option] = []

    @property
    def best(self) -> Option | None:
        """Of those tried."""
        return max(self.options, key=lambda option: option.tokens_per_s, default=None)


class Search:
    """Finds the best option of a question under a policy.

    Args:
        like: a search for a machine much like this one, whose kinds fell as short of their bounds.
    """

    def __init__(self, question: Question, like: "Search | None" = None) -> None:
        self.question = question
        self._reached = {} if like is None else like.reached()
        self._hopeless = frozenset[_Kind]() if like is None else like.hopeless()
        self._effort = _FULL if like is None else _REDUCED
        self.schedules = Schedules.of_model(question.model) if like is None else like.schedules
        self.footprint = Footprint(question)
        sweeps = Sweeps(question, self.footprint, self.schedules)
        self.predictor = Predictor(question, sweeps)
        self._lending = Lending(sweeps, self.predictor)
        self._candidates = Candidates(question, self.footprint)
        self._moves = Moves(self._candidates, question.movable_layers)
        self._estimated: list[tuple[Candidate, float]] = []
        self._options: dict[Candidate, Option] = {}
        self._piles: dict[str, dict[_Kind, _Pile]] = {}
        self._found: dict[str, Option | None] = {}

    def best(self, policy: Policy, known: Iterable[Candidate] = ()) -> Option | None:
        """The best option, or None if nothing fits, or keeps the bound on time per token.

        No policy that allows less has a better one: each is searched as if alone.

        Args:
            known: candidates to try as well, as those of a smaller machine.
        """
        best = self._searched(policy)
        for narrower in POLICIES.values():
            if policy.contains(narrower):
                best = self._better(best, self._searched(narrower))
        for candidate in filter(lambda c: self._possible(c, policy), known):
            best = self._better(best, self._option(candidate))
        return best

    def choice(self, policy: Policy) -> Option | None:
        """Of the options about as fast as the best one: a short job first, then the simplest."""
        best = self.best(policy)
        if best is None:
            return None
        near = [
            option
            for option in self._options.values()
            if option.tokens_per_s >= _AS_FAST * best.tokens_per_s
            and self._in_time(option.prediction.rates)
            and self._possible(option.candidate, policy)
        ]
        shortest_s = min(map(self._job_s, near))
        short = [option for option in near if self._job_s(option) * _AS_FAST <= shortest_s]
        return min(short, key=self._complexity)

    def _job_s(self, option: Option) -> float:
        return self.predictor.job_s(option.prediction.rates)

    def _complexity(self, option: Option) -> tuple[int, bool, bool, float, int]:
        """By strategy, what is read from disk, what the CPU computes, what a request sees, what the
        link carries.
        """
        candidate, rates = option.candidate, option.prediction.rates
        place = STRATEGIES.index(candidate.strategy)
        others = candidate.on_disk > 0, candidate.on_cpu > 0
        return place, *others, rates.worst_tpot_s, candidate.streamed

    def _searched(self, policy: Policy) -> Option | None:
        if policy.name not in self._found:
            self._found[policy.name] = self._search(policy)
        return self._found[policy.name]

    def _search(self, policy: Policy) -> Option | None:
        best: Option | None = None
        piles = list(self._kinds(policy).values())
        for _ in range(self._effort.tries):
            pile = max(piles, key=lambda pile: pile.promise, default=None)
            least = best.tokens_per_s * _BETTER if best else 0.0
            if pile is None or pile.promise <= least:
                break
            best = self._better(best, self._try(pile))
        return None if best is None else self._best_moved(best, piles, policy)

    def _best_moved(self, best: Option, piles: Iterable[_Pile], policy: Policy) -> Option:
        """The best after small moves of it and of what comes close to it in other kinds."""
        tried = (pile.best for pile in piles)
        starts = sorted(
            (option for option in tried if option), key=lambda option: -option.tokens_per_s
        )
        for start in [best, *starts[: self._effort.moved_kinds]]:
            if start.tokens_per_s >= _CLOSE * best.tokens_per_s:
                moved = self._moved(start, policy)
                best = moved if moved.tokens_per_s > best.tokens_per_s else best
        return best

    def reached(self) -> dict[_Kind, float]:
        """Of each kind that was tried, the most of its bound that it has reached."""
        return {
            kind: pile.reached
            for piles in self._piles.values()
            for kind, pile in piles.items()
            if pile.reached
        }

    def hopeless(self) -> frozenset[_Kind]:
        """Kinds that promise so much less than the best option that no small change helps them."""
        best = max((option.tokens_per_s for option in self._options.values()), default=0.0)
        piles = [entry for piles in self._piles.values() for entry in piles.items()]
        most = {kind: 0.0 for kind, _ in piles}
        for kind, pile in piles:
            most[kind] = max(most[kind], pile.most_per_s)
        return frozenset(kind for kind, found in most.items() if 0 < found < _HOPELESS * best)

    def alternatives(self, policy: Policy, chosen: Option) -> list[Option]:
        """The best option found of each kind that the chosen one is not, best first."""
        found: list[Option] = []
        for kind, pile in self._kinds(policy).items():
            if kind == self._kind(chosen.candidate):
                continue
            option = pile.best or self._try(pile)
            if option is not None and option.tokens_per_s <= chosen.tokens_per_s:
                found.append(option)
        return sorted(found, key=lambda option: -option.tokens_per_s)

    def _kind(self, candidate: Candidate) -> _Kind:
        """By strategy, all, some or no weights streamed, whether the KV is all on the host, what
        the CPU computes, and whether some layers are read from disk.
        """
        streamed, layers = candidate.streamed, self.question.movable_layers
        share = 0 if streamed == 0 else 2 if streamed >= layers - 1 else 1
        how = candidate.how if candidate.on_cpu else None
        reads = candidate.on_disk > 0
        return candidate.strategy, share, candidate.device_rows == 0, how, reads

    def _kinds(self, policy: Policy) -> dict[_Kind, _Pile]:
        """Candidates, piled up by kind."""
        if policy.name not in self._piles:
            piles: dict[_Kind, _Pile] = {}
            layers = self.question.movable_layers
            looks = self.predictor.rough_bound, self._bound_of
            for candidate, most_per_s in self._enumerated():
                if policy.allows(candidate, layers):
                    kind = self._kind(candidate)
                    if kind not in piles:
                        piles[kind] = _Pile(looks, self._reached.get(kind, 0.0))
                    piles[kind].add(candidate, most_per_s)
            self._piles[policy.name] = piles
        return self._piles[policy.name]

    def _enumerated(self) -> list[tuple[Candidate, float]]:
        """All candidates, every policy's among them, with tokens per second that they cannot
        exceed.
        """
        if not self._estimated:
            for plain in self._candidates.of(POLICIES["auto"]):
                if self._hopeless and self._kind(plain) in self._hopeless:
                    continue
                for candidate in (plain, *self._lending.of(plain)):
                    most_per_s = self.predictor.decode_bound(candidate)
                    self._estimated.append((candidate, most_per_s))
        return self._estimated

    def _bound_of(self, candidate: Candidate) -> float | None:
        """None if it breaks the bound on time per token, or lends layers for nothing."""
        rates = self.predictor.bound(candidate)
        if not self._in_time(rates):
            return None
        if candidate.elsewhere.lent:
            streamed = Elsewhere(candidate.streamed, on_disk=candidate.on_disk)
            plain = self.predictor.bound(candidate.with_elsewhere(streamed))
            if rates.job_tokens_per_s <= plain.job_tokens_per_s * _WORTH_MOVING:
                return None
        return rates.job_tokens_per_s

    def _in_time(self, rates: Rates) -> bool:
        bound_s = self.question.tpot_bound_s
        return bound_s is None or rates.worst_tpot_s <= bound_s

    def _possible(self, candidate: Candidate, policy: Policy) -> bool:
        allowed = policy.allows(candidate, self.question.movable_layers)
        return allowed and self.footprint.fits(candidate)

    def _try(self, pile: _Pile) -> Option | None:
        """Predict the next of a pile; None if there is none, or it breaks the bound on time per
        token.
        """
        taken = pile.take()
        if taken is None:
            return None
        candidate, bound = taken
        option = self._option(candidate)
        pile.reached = max(pile.reached, option.tokens_per_s / bound)
        if not self._in_time(option.prediction.rates):
            return None
        pile.options.append(option)
        return option

    def _better(self, best: Option | None, option: Option | None) -> Option | None:
        if option is None or not self._in_time(option.prediction.rates):
            return best
        if best is None or option.tokens_per_s > best.tokens_per_s * _BETTER:
            return option
        return best

    def _moved(self, start: Option, policy: Policy) -> Option:
        """Small moves of rows and layers, while one helps."""
        best, moves, improved = start, 0, True
        while improved and moves < self._effort.moves:
            improved = False
            for candidate in self._moves.of(best.candidate):
                least = best.tokens_per_s * _WORTH_MOVING
                if not self._possible(candidate, policy):
                    continue
                if self.predictor.bound(candidate).job_tokens_per_s <= least:
                    continue
                moves += 1
                option = self._option(candidate)
                if option.tokens_per_s > least and self._in_time(option.prediction.rates):
                    best, improved = option, True
        return best

    def _option(self, candidate: Candidate) -> Option:
        if candidate not in self._options:
            self._options[candidate] = Option(candidate, self.predictor.predict(candidate))
        return self._options[candidate]
