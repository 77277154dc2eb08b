"""The search: candidates by a bound that is cheap, the best of them by virtual time.

Candidates fall into kinds. The next one to be tried is the most promising of the kind that promises
most, given how far short of its bound that kind has fallen so far. The search ends when nothing
promises more than what has been found, and then moves the best of some kinds a little.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from tandem.planner.candidate import Candidate
from tandem.planner.fluid.schedule import Schedules
from tandem.planner.footprint import Footprint
from tandem.planner.option import Option
from tandem.planner.policies import POLICIES, Policy
from tandem.planner.prediction import Predictor
from tandem.planner.question import Question
from tandem.planner.relaxation.ceiling import Ceiling, Ceilings
from tandem.planner.relaxation.rounding import roundings
from tandem.planner.search.candidates import Candidates
from tandem.planner.search.kinds import WORTH_MOVING, Kind, KindPile, Kinds, most_promising
from tandem.planner.search.lending import Lending
from tandem.planner.search.moves import Moves
from tandem.planner.search.simplicity import complexity
from tandem.planner.search.step_sizes import StepSizes, strategies_beside_weights
from tandem.planner.sweeps import Sweeps

_BETTER = 1 + 1e-6
_AS_FAST = 0.99
"""Of the most tokens per second, or the inverse of the shortest job: predictions are no finer."""
_NEARBY = 1.1
"""Times a candidate's bound: what moves from it do not reach."""
_RANGES = 5
"""Of rows, as the linear programme bounds them, whose shares are rounded."""
_CLOSE = 0.9
"""Of the best option found, what another's must reach for its moves to be tried; and of what is
known, what others must promise.
"""
_WORTH_A_SIZE = 1.02
"""Of tokens per second in steps of the usual size: no finer do predictions tell sizes apart."""
_WORTH_RESIZING = 0.8
"""Of the best option found, what another must reach for other sizes of its steps to be tried: they
may bring more than moves do.
"""


@dataclass(frozen=True, slots=True)
class _Effort:
    """How many candidates virtual time is spent on.

    Attributes:
        tries: from the piles. moves: from each start. moved_kinds: starts beside the best, and
            beside the best of what was known and of what was tried; 0: none but the best.
        policies: whether others that allow less are searched as if alone, and what is tried and is
            not as good is known in full all the same, as alternatives are.
        rounds: whether what is near the linear programme's optimum is tried.
        sizes: whether steps of other sizes are.
    """

    tries: int
    moves: int
    moved_kinds: int
    policies: bool
    rounds: bool
    sizes: bool


_FULL = _Effort(16, 8, 2, policies=True, rounds=True, sizes=True)
_REDUCED = _Effort(5, 4, 0, policies=False, rounds=False, sizes=False)
_OF_A_SIZE = _Effort(16, 8, 0, policies=False, rounds=True, sizes=False)


class Search:
    """Finds the best option of a question under a policy.

    Args:
        like: a search for a machine much like this one, whose kinds fell as short of their bounds.
        known: candidates to try before others, as those of a smaller machine.
        effort: None: less of it where there is a search like this one.
    """

    def __init__(
        self,
        question: Question,
        like: "Search | None" = None,
        known: Iterable[Candidate] = (),
        effort: _Effort | None = None,
    ) -> None:
        self.question, self._known = question, tuple(known)
        self._effort = effort or (_FULL if like is None else _REDUCED)
        self.schedules = Schedules.of_model(question.model) if like is None else like.schedules
        self.footprint = Footprint(question)
        if like is not None and question.takes_as_long_as(like.question):
            self._sweeps, self.predictor = like._sweeps, like.predictor
            self._lending = like._lending
        else:
            beside = None if like is None else like._sweeps
            self._sweeps = Sweeps(question, self.footprint, self.schedules, like=beside)
            self.predictor = Predictor(question, self._sweeps)
            self._lending = Lending(self._sweeps, self.predictor)
        candidates = Candidates(question, self.footprint)
        self._moves = Moves(candidates, question.model)
        self._sizes = StepSizes(question, self.footprint, candidates)
        self._kinds = Kinds(
            question,
            candidates,
            self._lending,
            self.predictor,
            None if like is None else like._kinds,
            frozenset() if like is None else like._hopeless(),
        )
        self._options: dict[Candidate, Option] = {}
        self._found: dict[str, Option | None] = {}
        self._bests: dict[str, Option | None] = {}
        self._exceeding_only: set[str] = set()
        self._ceilings: dict[tuple[str, int], Ceiling] = {}
        self._of_sizes: dict[int, Search] = {}

    def ceiling(self, policy: Policy, step_tokens: int = 0) -> Ceiling | None:
        """What no plan under a policy exceeds; None: measured times follow no rates, which the
        linear programme is made of.

        Args:
            step_tokens: size of the plans' steps, as in `Candidate`.
        """
        if not self.question.follows_rates:
            return None
        key = policy.name, step_tokens
        if key not in self._ceilings:
            steps = (step_tokens,)
            ceilings = Ceilings(self.question, self.footprint, policy, steps=steps)
            ranges = _RANGES if self._is_rounded(policy) and not step_tokens else 1
            self._ceilings[key] = ceilings.with_runners_up(ranges)
        return self._ceilings[key]

    def best(self, policy: Policy) -> Option | None:
        """The best option, or None if nothing fits, or keeps the bound on time per token.

        No policy that allows less has a better one: each that might is searched as if alone, as far
        as that may be, unless what is known makes it unlikely.
        """
        if policy.name not in self._bests:
            best = self._searched(policy)
            for narrower in POLICIES.values() if self._effort.policies else ():
                if policy.contains(narrower) and self._may_exceed(narrower, best):
                    best = self._better(best, self._exceeding(narrower, best))
            self._bests[policy.name] = self._resized(best, policy)
        return self._bests[policy.name]

    def shortlisted(self, policy: Policy) -> Option | None:
        """The best of what is found without policies that allow less being searched as if alone."""
        return self._searched(policy)

    def _resized(self, best: Option | None, policy: Policy) -> Option | None:
        """The best in steps of any size: what comes close to it in steps of the usual one, of each
        strategy, is tried in the others, and moved where it is best. The usual one is kept where
        others bring next to nothing.
        """
        if not self._effort.sizes or len(self.question.steps) == 1:
            return best
        usual = best
        if usual is None or self.question.tpot_bound_s is not None:
            best = self._in_smaller_steps(best, policy)
        if best is None:
            return None
        starts = self._bests_by(attrgetter("strategy"), policy).values()
        for start in dict.fromkeys([best, *starts]):
            if start.tokens_per_s >= _WORTH_RESIZING * best.tokens_per_s:
                found = self._best_size(start, best, policy)
                if found is not None:
                    best = self._better(best, self._moved(found, policy)) or best
        if usual is not None and self.question.tpot_bound_s is None:
            best = self._beside_all_layers(best, policy)
        if usual is not None and best.tokens_per_s <= _WORTH_A_SIZE * usual.tokens_per_s:
            return usual
        return best

    def _in_smaller_steps(self, best: Option | None, policy: Policy) -> Option | None:
        """The best in smaller steps as well, each size searched by itself: what a bound on the time
        per token leaves of rows and placements, or what fits at all, is not near what is found in
        the usual size.
        """
        for step in self._smaller_steps():
            best = self._in_steps_of(step, best, policy)
        return best

    def _beside_all_layers(self, best: Option, policy: Policy) -> Option:
        """The best by a strategy for which all layers leave room in smaller steps alone as well, in
        the largest of these: what it can do beside layers elsewhere is not near that.
        """
        present = strategies_beside_weights(self.question, self.footprint, policy)
        for step in self._smaller_steps():
            absent = tuple(strategy for strategy in policy.strategies if strategy not in present)
            if not absent:
                break
            narrower = replace(policy, name=f"{policy.name} by {absent}", strategies=absent)
            sized = self._of_size(step)
            there = strategies_beside_weights(sized.question, sized.footprint, narrower)
            if there:
                best = self._in_steps_of(step, best, narrower) or best
                present |= there
        return best

    def _smaller_steps(self) -> list[int]:
        """The largest first."""
        usual = self.question.max_num_batched_tokens
        return sorted((step for step in self.question.steps[1:] if step < usual), reverse=True)

    def _of_size(self, step: int) -> "Search":
        if step not in self._of_sizes:
            alone = replace(self.question, max_num_batched_tokens=step, step_sizes=())
            self._of_sizes[step] = Search(alone, effort=_OF_A_SIZE)
        return self._of_sizes[step]

    def _in_steps_of(self, step: int, best: Option | None, policy: Policy) -> Option | None:
        found = self._of_size(step)._exceeding(policy, best)
        if found is None:
            return best
        return self._better(best, self._option(found.candidate._replace(step_tokens=step)))

    def _bests_by(
        self, group: Callable[[Candidate], Hashable], policy: Policy
    ) -> dict[Hashable, Option]:
        """Of the options that are known, the best of each group."""
        bests: dict[Hashable, Option] = {}
        for option in self._options.values():
            key = group(option.candidate)
            known = bests.get(key)
            if known is not None and known.tokens_per_s >= option.tokens_per_s:
                continue
            if self._in_time(option) and self._possible(option.candidate, policy):
                bests[key] = option
        return bests

    def _best_size(self, start: Option, best: Option, policy: Policy) -> Option | None:
        """The same in steps of the size that is best for it; None if none comes close to the best
        option known.
        """
        found: Option | None = None
        least = _CLOSE * best.tokens_per_s
        for candidate in self._sizes.of(start.candidate):
            if not self._possible(candidate, policy):
                continue
            if self.predictor.closer_bound(candidate).job_tokens_per_s <= least:
                continue
            option = self._option(candidate)
            if self._in_time(option) and option.tokens_per_s > least * WORTH_MOVING:
                found, least = option, option.tokens_per_s
        return found

    def _exceeding(self, policy: Policy, best: Option | None) -> Option | None:
        """The best option of a policy, if it exceeds this one."""
        if best is None or policy.name in self._found:
            return self._searched(policy)
        self._exceeding_only.add(policy.name)
        return self._search(policy, best.tokens_per_s / _NEARBY)

    def _may_exceed(self, policy: Policy, best: Option | None) -> bool:
        """Whether one of its candidates, or what is near it, may be better, by their bounds."""
        if policy.name in self._found:
            return True
        least = 0.0 if best is None else best.tokens_per_s / _NEARBY
        return any(pile.next_bound(least) > least for pile in self._kinds.piles(policy).values())

    def choice(self, policy: Policy) -> Option | None:
        """Of the options about as fast as the best one: a short job first, then the simplest."""
        best = self.best(policy)
        if best is None:
            return None
        near = [
            option
            for option in self._options.values()
            if option.tokens_per_s >= _AS_FAST * best.tokens_per_s
            and (best.candidate.step_tokens or not option.candidate.step_tokens)
            and self._in_time(option)
            and self._possible(option.candidate, policy)
        ]
        shortest_s = min(map(self._job_s, near))
        short = [option for option in near if self._job_s(option) * _AS_FAST <= shortest_s]
        return min(short, key=complexity)

    def _job_s(self, option: Option) -> float:
        return self.predictor.job_s(option.prediction.rates)

    def _searched(self, policy: Policy) -> Option | None:
        if policy.name not in self._found:
            if policy.name in self._exceeding_only:
                self._kinds.forget(policy)
            self._found[policy.name] = self._search(policy)
        return self._found[policy.name]

    def _search(self, policy: Policy, at_least: float = 0.0) -> Option | None:
        """Try what promises most, and move the best.

        Args:
            at_least: tokens per second; what is not near them is of no interest.
        """
        known, best = self._best_known(policy), None
        # where none but the best is moved, what does not exceed what is known is of no use
        close = _CLOSE if self._effort.moved_kinds else _BETTER
        least = 0.0 if known is None else close * known.tokens_per_s
        piles = list(self._kinds.piles(policy, least).values())
        least = max(least, at_least)
        for _ in range(self._effort.tries):
            pile = most_promising(piles, least)
            if pile is None:
                break
            beaten = pile.best if self._effort.policies else best or known
            best = self._better(best, self._try(pile, beaten))
            least = max(least, best.tokens_per_s * _BETTER if best else 0.0)
        starts = [option for option in (known, best) if option and self._effort.moved_kinds]
        for candidate in self._rounded(policy):
            if self.predictor.bound(candidate).job_tokens_per_s > least:
                if best is not None and self._is_hopeless(candidate, best):
                    continue
                best = self._better(best, self._option(candidate))
                least = max(least, best.tokens_per_s * _BETTER if best else 0.0)
        best = self._better(best, known)
        if best is None or best.tokens_per_s < at_least:
            return best
        return self._best_moved(best, starts, piles, policy)

    def _rounded(self, policy: Policy) -> Iterator[Candidate]:
        """Near the optimum of the linear programme, of the policy that allows all."""
        ceiling = self.ceiling(policy) if self._is_rounded(policy) else None
        if ceiling is not None:
            found = roundings(self.question, self.footprint, ceiling.ranges)
            yield from (candidate for candidate in found if self._possible(candidate, policy))

    def _is_rounded(self, policy: Policy) -> bool:
        return self._effort.rounds and policy.name == "auto"

    def _best_known(self, policy: Policy) -> Option | None:
        best: Option | None = None
        for candidate in filter(lambda c: self._possible(c, policy), self._known):
            best = self._better(best, self._option(candidate))
        return best

    def _best_moved(
        self, best: Option, starts: Sequence[Option], piles: Iterable[KindPile], policy: Policy
    ) -> Option:
        """The best after small moves of it, and of what comes close to it: other starts, and the
        best of other kinds.
        """
        tried = sorted((p.best for p in piles if p.best), key=lambda option: -option.tokens_per_s)
        for start in dict.fromkeys([best, *starts, *tried[: self._effort.moved_kinds]]):
            if start.tokens_per_s >= _CLOSE * best.tokens_per_s:
                best = self._better(best, self._moved(start, policy)) or best
        return best

    def alternatives(self, policy: Policy, chosen: Option) -> Iterator[Option]:
        """The best option found of each kind that the chosen one is not, in steps of any size, best
        first.
        """
        own = self._kinds.of(chosen.candidate)
        known = self._bests_by(self._kinds.of, policy)
        found = [option for kind, option in known.items() if kind != own]
        piles = self._kinds.piles(policy).items()
        untried = [pile for kind, pile in piles if kind != own and kind not in known]
        while True:
            best = max(found, key=lambda option: option.tokens_per_s, default=None)
            least = 0.0 if best is None else best.tokens_per_s
            pile = max(untried, key=lambda pile: pile.next_bound(least), default=None)
            if pile is not None and pile.next_bound(least) > least:
                untried.remove(pile)
                option = self._try(pile)
                if option is not None:
                    found.append(option)
            elif best is None:
                return
            else:
                found.remove(best)
                if best.tokens_per_s <= chosen.tokens_per_s:
                    yield best

    def _hopeless(self) -> frozenset[Kind]:
        best = max((option.tokens_per_s for option in self._options.values()), default=0.0)
        return self._kinds.hopeless(best)

    def _in_time(self, option: Option) -> bool:
        return self.question.allows(option.prediction.rates.worst_tpot_s)

    def _possible(self, candidate: Candidate, policy: Policy) -> bool:
        allowed = policy.allows(candidate, self.question.movable_layers)
        return allowed and self.footprint.fits(candidate)

    def _try(self, pile: KindPile, beaten: Option | None = None) -> Option | None:
        """Predict the next of a pile; None if there is none, or it breaks the bound on time per
        token.

        Args:
            beaten: None as well if it is hopeless beside this one.
        """
        taken = pile.take()
        if taken is None:
            return None
        candidate, bound = taken
        if beaten is not None and self._is_hopeless(candidate, beaten):
            return None
        option = self._option(candidate)
        pile.reached = max(pile.reached, option.tokens_per_s / bound)
        if not self._in_time(option):
            return None
        pile.options.append(option)
        return option

    def _better(self, best: Option | None, option: Option | None) -> Option | None:
        if option is None or not self._in_time(option):
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
                least = best.tokens_per_s * WORTH_MOVING
                if not self._possible(candidate, policy):
                    continue
                if self.predictor.bound(candidate).job_tokens_per_s <= least:
                    continue
                if self._is_hopeless(candidate, best):
                    continue
                moves += 1
                option = self._option(candidate)
                if option.tokens_per_s > least and self._in_time(option):
                    best, improved = option, True
        return best

    def _is_hopeless(self, candidate: Candidate, best: Option) -> bool:
        """Whether it is so much slower than the best that it is not even as fast within reason,
        which one sweep in virtual time may show.
        """
        if candidate in self._options:
            return False
        closer = self.predictor.closer_bound(candidate)
        return closer.job_tokens_per_s < _AS_FAST * best.tokens_per_s

    def _option(self, candidate: Candidate) -> Option:
        if candidate not in self._options:
            self._options[candidate] = Option(candidate, self.predictor.predict(candidate))
        return self._options[candidate]
