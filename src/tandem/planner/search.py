"""The search: candidates by a bound that is cheap, the best of them by virtual time.

Candidates fall into kinds. The next one to be tried is the most promising of the kind that promises
most, given how far short of its bound that kind has fallen so far. The search ends when nothing
promises more than what has been found, and then moves the best of some kinds a little.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tandem.plan.weights import STREAM_SLOTS
from tandem.planner.candidate import STRATEGIES, Candidate, Strategy
from tandem.planner.candidates import Candidates
from tandem.planner.footprint import Footprint
from tandem.planner.policies import POLICIES, Policy
from tandem.planner.prediction import Prediction, Predictor, Rates
from tandem.planner.question import Question
from tandem.planner.schedule import Schedules
from tandem.planner.sweeps import Sweeps

_HOPE = 1.01
"""A kind may come so much closer to its bound than it has so far."""
_FACTORS = (0.8, 0.93, 0.98, 1.02, 1.07, 1.25)
_BETTER = 1 + 1e-6
_AS_FAST = 0.99
"""Of the most tokens per second, or the inverse of the shortest job: predictions are no finer."""
_WORTH_MOVING = 1.0005
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

_Kind = tuple[Strategy, int, bool]


@dataclass(frozen=True, slots=True)
class Option:
    """A candidate with its prediction."""

    candidate: Candidate
    prediction: Prediction

    @property
    def tokens_per_s(self) -> float:
        """Over the whole job: what options are ranked by; alone, it is the inverse of latency."""
        return self.prediction.rates.job_tokens_per_s


@dataclass(slots=True)
class _Pile:
    """Candidates of one kind, the best bound first.

    Attributes:
        reached: most of its bound that any of them has reached; 0: none was tried.
    """

    entries: list[tuple[float, Candidate]]
    reached: float = 0.0
    tried: int = 0
    options: list[Option] = field(default_factory=list[Option])

    @property
    def promise(self) -> float:
        """Tokens per second that the next one may reach."""
        if self.tried == len(self.entries):
            return 0.0
        hope = min(1.0, self.reached * _HOPE) if self.reached else 1.0
        return self.entries[self.tried][0] * hope

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
        self._effort = _FULL if like is None else _REDUCED
        windows = question.model.layer_windows
        self.schedules = Schedules(len(windows), windows) if like is None else like.schedules
        self.footprint = Footprint(question)
        self.predictor = Predictor(question, Sweeps(question, self.footprint, self.schedules))
        self._candidates = Candidates(question, self.footprint)
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

    def _complexity(self, option: Option) -> tuple[int, float, int]:
        """By strategy, then what a request sees, then what the link carries."""
        candidate, rates = option.candidate, option.prediction.rates
        return STRATEGIES.index(candidate.strategy), rates.worst_tpot_s, candidate.streamed

    def _searched(self, policy: Policy) -> Option | None:
        if policy.name not in self._found:
            self._found[policy.name] = self._search(policy)
        return self._found[policy.name]

    def _search(self, policy: Policy) -> Option | None:
        best: Option | None = None
        piles = list(self._kinds(policy).values())
        for _ in range(self._effort.tries):
            pile = max(piles, key=lambda pile: pile.promise, default=None)
            if pile is None or (best and pile.promise <= best.tokens_per_s * _BETTER):
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

    def alternatives(self, policy: Policy, chosen: Option) -> list[Option]:
        """The best option found of each kind that the chosen one is not, best first."""
        found: list[Option] = []
        for kind, pile in self._kinds(policy).items():
            if kind == self._kind(chosen.candidate):
                continue
            option = pile.best or (self._try(pile) if pile.entries else None)
            if option is not None and option.tokens_per_s <= chosen.tokens_per_s:
                found.append(option)
        return sorted(found, key=lambda option: -option.tokens_per_s)

    def _kind(self, candidate: Candidate) -> _Kind:
        """By strategy, all, some or no weights streamed, and whether the KV is all on the host."""
        streamed, layers = candidate.streamed, self.question.model.num_layers
        share = 0 if streamed == 0 else 2 if streamed >= layers - 1 else 1
        return candidate.strategy, share, candidate.device_rows == 0

    def _kinds(self, policy: Policy) -> dict[_Kind, _Pile]:
        """Candidates that may keep the bound on time per token, piled up by kind."""
        if policy.name not in self._piles:
            piles: dict[_Kind, _Pile] = {}
            for candidate in self._candidates.of(policy):
                rates = self.predictor.bound(candidate)
                if self._in_time(rates):
                    kind = self._kind(candidate)
                    pile = piles.setdefault(kind, _Pile([], self._reached.get(kind, 0.0)))
                    pile.entries.append((rates.job_tokens_per_s, candidate))
            for pile in piles.values():
                pile.entries.sort(key=lambda entry: (-entry[0], entry[1].streamed, entry[1].rows))
            self._piles[policy.name] = piles
        return self._piles[policy.name]

    def _in_time(self, rates: Rates) -> bool:
        bound_s = self.question.tpot_bound_s
        return bound_s is None or rates.worst_tpot_s <= bound_s

    def _possible(self, candidate: Candidate, policy: Policy) -> bool:
        allowed = policy.allows(candidate, self.question.model.num_layers)
        return allowed and self.footprint.fits(candidate)

    def _try(self, pile: _Pile) -> Option | None:
        """Predict the next of a pile; None if it breaks the bound on time per token."""
        bound, candidate = pile.entries[pile.tried]
        option = self._option(candidate)
        pile.tried += 1
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
            for candidate in self._neighbours(best.candidate):
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

    def _neighbours(self, candidate: Candidate) -> Iterator[Candidate]:
        steps = [(0, factor) for factor in _FACTORS] if candidate.host_rows else []
        for layers, factor in [*steps, (-STREAM_SLOTS, 1.0), (STREAM_SLOTS, 1.0)]:
            streamed = candidate.streamed + layers
            hosted = round(candidate.host_rows * factor)
            if not 0 <= streamed <= self.question.model.num_layers:
                continue
            if candidate.device_share and hosted:
                yield self._candidates.split(streamed, hosted)
                continue
            device = 0
            if candidate.device_rows:
                device = self._candidates.most_on_device(candidate.strategy, streamed, hosted)
            moved = Candidate(candidate.strategy, streamed, device, hosted)
            if moved.rows and moved != candidate:
                yield moved

    def _option(self, candidate: Candidate) -> Option:
        if candidate not in self._options:
            self._options[candidate] = Option(candidate, self.predictor.predict(candidate))
        return self._options[candidate]
