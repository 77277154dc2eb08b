"""The search: candidates by a bound that is cheap, the best of them by virtual time.

Candidates fall into kinds. The next one to be tried is the most promising of the kind that promises
most, given how far short of its bound that kind has fallen so far. The search ends when nothing
promises more than what has been found, and then moves the best of some kinds a little.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from tandem.planner.aside import Aside, InTurn
from tandem.planner.candidate import Candidate
from tandem.planner.fluid.schedule import Schedules
from tandem.planner.footprint import Footprint
from tandem.planner.glance import Glances
from tandem.planner.option import Option
from tandem.planner.policies import GPU_ONLY_BESIDE_CPU, POLICIES, Policy
from tandem.planner.prediction import Predictor
from tandem.planner.question import Question
from tandem.planner.relaxation.bounded import Ceiling
from tandem.planner.relaxation.rounding import roundings
from tandem.planner.search.candidates import Candidates
from tandem.planner.search.climbing import CLOSE, Climbing
from tandem.planner.search.effort import FULL, OF_A_SIZE, REDUCED, Effort
from tandem.planner.search.kinds import Kind, KindPile, Kinds, most_promising
from tandem.planner.search.lending import Lending
from tandem.planner.search.moves import Moves
from tandem.planner.search.options import AS_FAST, BETTER, Options
from tandem.planner.search.other_homes import OtherHomes
from tandem.planner.search.other_sizes import WORTH_RESIZING, OtherSizes
from tandem.planner.search.simplicity import complexity
from tandem.planner.search.step_sizes import StepSizes
from tandem.planner.sweeps import Sweeps

_NEARBY = 1.1
"""Times a candidate's bound: what moves from it in steps of its size do not reach."""
_RANGES = 5
"""Of rows, as the linear programme bounds them, whose shares are rounded."""


class Search:
    """Finds the best option of a question under a policy.

    Args:
        like: a search for a machine much like this one, whose kinds fell as short of their bounds.
        known: candidates to try before others, as those of a smaller machine.
        effort: None: less of it where there is a search like this one.
        aside: who may solve linear programmes meanwhile.
    """

    def __init__(
        self,
        question: Question,
        like: "Search | None" = None,
        known: Iterable[Candidate] = (),
        effort: Effort | None = None,
        aside: Aside | None = None,
    ) -> None:
        self.question, self._known = question, tuple(known)
        self._aside = aside or InTurn()
        self._effort = effort or (FULL if like is None else REDUCED)
        self.schedules = Schedules.of_model(question.model) if like is None else like.schedules
        self.footprint = Footprint(question, None if like is None else like.footprint)
        if like is not None and question.takes_as_long_as(like.question):
            self._sweeps, self.predictor = like._sweeps, like.predictor
            self._lending, self._glances = like._lending, like._glances
        else:
            beside = None if like is None else like._sweeps
            self._sweeps = Sweeps(question, self.footprint, self.schedules, like=beside)
            same = None if like is None else like.predictor
            self.predictor = Predictor(question, self._sweeps, like=same)
            self._lending = Lending(self._sweeps, self.predictor)
            seen = None if like is None else like._glances
            self._glances = Glances(question, self._sweeps, self.predictor, like=seen)
        candidates = Candidates(question, self.footprint)
        self._options = Options(question, self.footprint, self.predictor)
        moves = Moves(
            candidates,
            question.model,
            self.predictor.pace,
            question.tile_rows,
            in_time=question.tpot_bound_s is not None,
        )
        self._homes = OtherHomes(
            candidates, moves, self._lending, self.predictor, self._options, self.footprint
        )
        self._climbing = Climbing(self._options, moves, self.predictor, self._effort)
        self._sizes = OtherSizes(
            question,
            self.footprint,
            self._options,
            StepSizes(question, self.footprint, candidates),
            self._climbing,
            self.predictor,
            lambda alone: Search(alone, effort=OF_A_SIZE),
        )
        self._kinds = Kinds(
            question,
            candidates,
            self._sweeps,
            self._lending,
            self._glances,
            self.predictor,
            None if like is None else like._kinds,
            frozenset() if like is None else like.hopeless(),
        )
        resized = self._effort.sizes and len(question.steps) > 1
        self._nearby = WORTH_RESIZING if resized else 1 / _NEARBY
        self._out_of_question: frozenset[Kind] | None = None
        self._found: dict[str, Option | None] = {}
        self._bests: dict[tuple[str, bool], Option | None] = {}
        self._exceeding_only: set[str] = set()
        self._ceilings: dict[tuple[str, int], Ceiling] = {}
        self._coming: dict[tuple[str, int], Callable[[], Ceiling]] = {}

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
            self.begin_ceiling(policy, step_tokens)
            self._ceilings[key] = self._coming.pop(key)()
        return self._ceilings[key]

    def begin_ceiling(self, policy: Policy, step_tokens: int = 0) -> None:
        """It will be asked for; arguments as of `ceiling`."""
        key = policy.name, step_tokens
        if key in self._ceilings or key in self._coming or not self.question.follows_rates:
            return
        self._coming[key] = self._aside.begin(partial(self._find_ceiling, policy, step_tokens))

    def _find_ceiling(self, policy: Policy, step_tokens: int) -> Ceiling:
        # where there is another process, it alone has any use for these
        from tandem.planner.relaxation.ceiling import Ceilings

        ceilings = Ceilings(self.question, self.footprint, policy, steps=(step_tokens,))
        ranges = _RANGES if self._is_rounded(policy) and not step_tokens else 1
        return ceilings.with_runners_up(ranges)

    def best(self, policy: Policy, *, alone: bool = False) -> Option | None:
        """The best option, or None if nothing fits, or keeps the bound on time per token.

        No policy that allows less has a better one: each that might is searched as if alone, as far
        as that may be, unless what is known makes it unlikely; also in steps of other sizes.

        Args:
            alone: without those policies, which are searched anyhow.
        """
        key = policy.name, alone
        if key not in self._bests:
            best = self._searched(policy)
            narrower = [] if alone else self._narrower(policy)
            for less in narrower:
                if self._may_exceed(less, best):
                    best = self._options.better(best, self.exceeding(less, best))
            if self._effort.sizes:
                best = self._sizes.best(best, (policy, *narrower))
            self._bests[key] = best
        return self._bests[key]

    def shortlisted(self, policy: Policy) -> Option | None:
        """The best of what is found without policies that allow less being searched as if alone."""
        return self._searched(policy)

    def exceeding(self, policy: Policy, best: Option | None) -> Option | None:
        """The best option of a policy, if it exceeds this one."""
        if best is None or policy.name in self._found:
            return self._searched(policy)
        self._exceeding_only.add(policy.name)
        return self._search(policy, best.tokens_per_s * self._nearby)

    def choice(self, policy: Policy, *, alone: bool = False) -> Option | None:
        """Of the options about as fast as the best one: a short job first, then the simplest;
        arguments as of `best`.
        """
        best = self.best(policy, alone=alone)
        if best is None:
            return None
        near = self._options.as_fast_as(best, policy)
        shortest_s = min(map(self._job_s, near))
        short = [option for option in near if self._job_s(option) * AS_FAST <= shortest_s]
        return min(short, key=complexity)

    def contenders(self, policy: Policy, share: float) -> list[Option]:
        """The best option found of each kind, by where prompts are read and the size of steps, that
        reach this share of the best one's tokens per second: the best of every strategy, then the
        second of each, and so on.
        """
        known = self._options.bests_by(
            lambda c: (self._kinds.of(c), c.reads_here, c.step_tokens), policy
        )
        found = sorted(known.values(), key=lambda option: -option.tokens_per_s)
        places: dict[Option, int] = {}
        ahead = Counter[str]()
        for option in found:
            if option.tokens_per_s >= share * found[0].tokens_per_s:
                places[option] = ahead[option.candidate.strategy]
                ahead[option.candidate.strategy] += 1
        return sorted(places, key=lambda option: places[option])

    def best_seen(self, policy: Policy) -> Option | None:
        """The best under a policy of what has been tried under any."""
        return self._options.bests_by(lambda _: None, policy).get(None)

    def kind(self, candidate: Candidate) -> Kind:
        """Of which it is, among those that fall about equally short of their bounds."""
        return self._kinds.of(candidate)

    def tried(self, candidate: Candidate, policy: Policy) -> Option | None:
        """It, if it is allowed, fits, and keeps the bound on time per token."""
        if not self._options.possible(candidate, policy):
            return None
        option = self._options.of(candidate)
        return option if self._options.in_time(option) else None

    def with_other_homes(
        self, candidate: Candidate, others: Iterable[Candidate], policy: Policy
    ) -> list[Candidate]:
        """The same requests, or those of others, with layers where they promise to end sooner in
        step; best first.
        """
        return self._homes.of(candidate, others, policy)

    def alternatives(self, policy: Policy, chosen: Option) -> Iterator[Option]:
        """The best option found of each kind that the chosen one is not, in steps of any size, best
        first.
        """
        own = self._kinds.of(chosen.candidate)
        known = self._options.bests_by(self._kinds.of, policy)
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
                yield best

    def _narrower(self, policy: Policy) -> list[Policy]:
        """Those that allow less and are searched as if alone."""
        if not self._effort.policies:
            return []
        known = (*POLICIES.values(), GPU_ONLY_BESIDE_CPU)
        return [less for less in known if less != policy and policy.contains(less)]

    def _may_exceed(self, policy: Policy, best: Option | None) -> bool:
        """Whether one of its candidates, what is near it, or that in steps of another size, may be
        better, by their bounds.
        """
        if policy.name in self._found:
            return True
        least = 0.0 if best is None else best.tokens_per_s * self._nearby
        piles = self._kinds.piles(policy, least).values()
        return any(pile.next_bound(least) > least for pile in piles)

    def _job_s(self, option: Option) -> float:
        return self.predictor.job_s(option.prediction.rates)

    def hopeless(self) -> frozenset[Kind]:
        """Kinds that searches like this one leave out, by what was known when first asked for."""
        if self._out_of_question is None:
            self._out_of_question = self._kinds.hopeless(self._options.best_per_s)
        return self._out_of_question

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
        if self._is_rounded(policy):
            self.begin_ceiling(policy)
        options, known, best = self._options, self._best_known(policy), None
        # where none but the best is moved, what does not exceed what is known is of no use
        close = CLOSE if self._effort.moved_kinds else BETTER
        least = 0.0 if known is None else close * known.tokens_per_s
        least = max(least, at_least)
        piles = list(self._kinds.piles(policy, least).values())
        for _ in range(self._effort.tries):
            pile = most_promising(piles, least)
            if pile is None:
                break
            beaten = pile.best if self._effort.policies else best or known
            best = options.better(best, self._try(pile, beaten))
            least = max(least, best.tokens_per_s * BETTER if best else 0.0)
        starts = [option for option in (known, best) if option and self._effort.moved_kinds]
        for candidate in self._rounded(policy):
            if self.predictor.bound(candidate).job_tokens_per_s > least:
                if best is not None and options.is_hopeless(candidate, best):
                    continue
                best = options.better(best, options.of(candidate))
                least = max(least, best.tokens_per_s * BETTER if best else 0.0)
        best = options.better(best, known)
        if best is None or best.tokens_per_s < at_least:
            return best
        tried = sorted((p.best for p in piles if p.best), key=lambda option: -option.tokens_per_s)
        starts += tried[: self._effort.moved_kinds]
        return self._climbing.best_from(best, starts, policy)

    def _rounded(self, policy: Policy) -> Iterator[Candidate]:
        """Near the optimum of the linear programme, of the policy that allows all."""
        ceiling = self.ceiling(policy) if self._is_rounded(policy) else None
        if ceiling is not None:
            found = roundings(self.question, self.footprint, ceiling.ranges)
            yield from (c for c in found if self._options.possible(c, policy))

    def _is_rounded(self, policy: Policy) -> bool:
        return self._effort.rounds and policy.name == "auto"

    def _best_known(self, policy: Policy) -> Option | None:
        best: Option | None = None
        for candidate in filter(lambda c: self._options.possible(c, policy), self._known):
            best = self._options.better(best, self._options.of(candidate))
        return best

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
        if beaten is not None and self._options.is_hopeless(candidate, beaten):
            return None
        option = self._options.of(candidate)
        pile.reached = max(pile.reached, option.tokens_per_s / bound)
        if not self._options.in_time(option):
            return None
        pile.options.append(option)
        return option
