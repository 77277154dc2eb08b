"""The search over sizes of steps: near what is good in the usual size, and each by itself."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import Protocol

from tandem.planner.candidate import Candidate
from tandem.planner.footprint import Footprint
from tandem.planner.option import Option
from tandem.planner.policies import Policy
from tandem.planner.prediction import Predictor
from tandem.planner.question import Question
from tandem.planner.search.climbing import CLOSE, Climbing
from tandem.planner.search.effort import OF_A_SIZE
from tandem.planner.search.kinds import WORTH_MOVING, KindPile, most_promising
from tandem.planner.search.options import BETTER, Options
from tandem.planner.search.step_sizes import (
    StepSizes,
    beside_weights,
    strategies_beside_weights,
)

WORTH_RESIZING = 0.8
"""Of the best option found, what another must reach, or promise in the usual size, for other sizes
of its steps to be tried: they may bring more than moves do.
"""

_MORE_ROWS = 1.2
"""Times those of the best option found: if prompts do not keep up with so many, it is they that
bound its rows.
"""


class SearchOfSize(Protocol):
    """A search in steps of one size."""

    def exceeding(self, policy: Policy, best: Option | None) -> Option | None:
        """The best option of a policy, if it exceeds this one."""
        ...


class OtherSizes:
    """Finds options in steps of any size.

    Args:
        options: known in steps of the usual size, to which those in others are added.
        search_of: a search for a question in steps of one size.
    """

    def __init__(
        self,
        question: Question,
        footprint: Footprint,
        options: Options,
        sizes: StepSizes,
        climbing: Climbing,
        predictor: Predictor,
        search_of: Callable[[Question], SearchOfSize],
    ) -> None:
        self._q, self._footprint, self._predictor = question, footprint, predictor
        self._options, self._sizes, self._climbing = options, sizes, climbing
        self._search_of = search_of
        self._of_sizes: dict[int, SearchOfSize] = {}

    def best(self, usual: Option | None, policies: Sequence[Policy]) -> Option | None:
        """The best in steps of any size: what comes close to it in steps of the usual one, of each
        strategy, is tried in the others, and moved where it is best.

        Args:
            usual: the best in steps of the usual size.
            policies: the first allows all that the others do, each of whose best are tried as well.
        """
        best = usual
        if len(self._q.steps) == 1:
            return best
        if usual is None or self._q.tpot_bound_s is not None:
            for policy in policies:
                best = self._in_smaller_steps(best, policy)
        if best is None:
            return None
        if usual is not None and self._streams_for_prompts(best):
            best = self._in_steps_of(max(self._q.steps[1:]), best, policies[0]) or best
        least = WORTH_RESIZING * best.tokens_per_s
        for policy in policies:
            best = self._resized(best, policy, least)
        best = self._moved_on(best, policies[0])
        if usual is not None and self._q.tpot_bound_s is None:
            best = self._beside_all_layers(best, policies[0])
        return best

    def _streams_for_prompts(self, best: Option) -> bool:
        """Whether weights come for each of a prompt's chunks, or for each step that prompts fill:
        the largest steps need the fewest, and are then searched by themselves, since what is good
        there may be far from the best here.
        """
        question, candidate = self._q, best.candidate
        if not candidate.elsewhere.not_resident:
            return False
        if question.lengths.prompt_tokens > question.max_num_batched_tokens:
            return True
        if not (candidate.elsewhere.whole_on_cpu or candidate.elsewhere.mlps_on_cpu):
            return False  # the same in larger steps is near what is best there
        rows, layers = candidate.in_every_sweep(), question.model.num_layers
        more = _MORE_ROWS * candidate.served(layers)
        return not question.prompts_keep_up(rows, more, candidate.step_tokens)

    def _resized(self, best: Option, policy: Policy, least: float) -> Option:
        """The best one of each strategy in steps of other sizes, if it is near the best; with
        streamed layers and without, since what must be in one size may be resident in another; and
        by where prompts are read, since larger steps have room for more of them.

        Args:
            least: tokens per second; what makes less is not near the best, which may have come that
                far in another size itself.
        """
        for start in dict.fromkeys([best, *self._bests(policy)]):
            if start.tokens_per_s >= least:
                for found in self._best_sizes(start, best, policy):
                    best = self._options.better(best, self._climbing.moved(found, policy)) or best
        return best

    def _bests(self, policy: Policy) -> list[Option]:
        """The best known of each kind that other sizes of steps change differently."""
        found = self._options.bests_by(lambda c: (c.strategy, c.streamed > 0, c.reads_here), policy)
        return list(found.values())

    def _moved_on(self, best: Option, policy: Policy) -> Option:
        """After further moves of those in other sizes that are near it, while one helps: a
        larger step has room for far more requests than are reached from those of the usual size.
        """
        improved = True
        while improved:
            improved = False
            for start in self._bests(policy):
                if not start.candidate.step_tokens:
                    continue
                if start.tokens_per_s >= WORTH_RESIZING * best.tokens_per_s:
                    moved = self._climbing.moved(start, policy)
                    improved |= moved.tokens_per_s > start.tokens_per_s * WORTH_MOVING
                    best = self._options.better(best, moved) or best
        return best

    def _best_sizes(self, start: Option, best: Option, policy: Policy) -> list[Option]:
        """The same in steps of the size that is best for it, by where prompts are read, from which
        moves lead elsewhere; none that does not come close to the best option known.
        """
        options, close = self._options, CLOSE * best.tokens_per_s
        found = dict[bool, Option]()
        for candidate in self._sizes.of(start.candidate):
            if not options.possible(candidate, policy):
                continue
            known = found.get(candidate.reads_here)
            least = close if known is None else known.tokens_per_s
            if self._predictor.rough_bound(candidate) <= least:  # which no sweep is timed for
                continue
            if self._predictor.closer_bound(candidate).job_tokens_per_s <= least:
                continue
            option = options.of(candidate)
            if options.in_time(option) and option.tokens_per_s > least * WORTH_MOVING:
                found[candidate.reads_here] = option
        return list(found.values())

    # --- sizes searched by themselves -------------------------------------------------------------

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
        present = strategies_beside_weights(self._q, self._footprint, policy)
        for step in self._smaller_steps():
            absent = tuple(strategy for strategy in policy.strategies if strategy not in present)
            if not absent:
                break
            narrower = replace(policy, name=f"{policy.name} by {absent}", strategies=absent)
            there = beside_weights(self._alone(step), narrower)
            present |= {candidate.strategy for candidate in there}
            found = self._best_of((each._replace(step_tokens=step) for each in there), best)
            if found is not None:
                best = self._options.better(best, self._climbing.moved(found, narrower)) or best
        return best

    def _best_of(self, candidates: Iterable[Candidate], best: Option) -> Option | None:
        """The best of some in virtual time; None if none comes close to the best option known."""
        predictor, options, found = self._predictor, self._options, None
        least = CLOSE * best.tokens_per_s

        def first_look(candidate: Candidate, lends: bool) -> tuple[Candidate, float]:
            return candidate, predictor.first_bound(candidate)

        def bound(candidate: Candidate) -> float:
            return predictor.bound(candidate).job_tokens_per_s

        piles: dict[tuple[object, ...], KindPile] = {}
        for each in candidates:
            kind = each.strategy, each.passes, each.device_rows > 0, each.reads_here
            if kind not in piles:
                piles[kind] = KindPile(first_look, (predictor.rough_bound, bound), 0.0)
            piles[kind].add(each, inf, lends=False)
        for _ in range(OF_A_SIZE.tries):
            pile = most_promising(piles.values(), least)
            taken = None if pile is None else pile.take()
            if pile is None or taken is None:
                break
            candidate, most_per_s = taken
            option = options.of(candidate)
            pile.reached = max(pile.reached, option.tokens_per_s / most_per_s)
            if option.tokens_per_s > least:
                found, least = option, option.tokens_per_s * BETTER
        return found

    def _smaller_steps(self) -> list[int]:
        """The largest first."""
        usual = self._q.max_num_batched_tokens
        return sorted((step for step in self._q.steps[1:] if step < usual), reverse=True)

    def _of_size(self, step: int) -> SearchOfSize:
        if step not in self._of_sizes:
            self._of_sizes[step] = self._search_of(self._alone(step))
        return self._of_sizes[step]

    def _alone(self, step: int) -> Question:
        """The question in steps of one size."""
        return replace(self._q, max_num_batched_tokens=step, step_sizes=())

    def _in_steps_of(self, step: int, best: Option | None, policy: Policy) -> Option | None:
        found = self._of_size(step).exceeding(policy, best)
        if found is None:
            return best
        option = self._options.of(found.candidate._replace(step_tokens=step))
        return self._options.better(best, option)
