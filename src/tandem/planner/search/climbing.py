"""Options moved a little, step by step, while they become better."""

from collections.abc import Iterable

from tandem.planner.option import Option
from tandem.planner.policies import Policy
from tandem.planner.prediction import Predictor
from tandem.planner.search.effort import Effort
from tandem.planner.search.kinds import WORTH_MOVING
from tandem.planner.search.moves import Moves
from tandem.planner.search.options import Options

CLOSE = 0.9
"""Of the best option found, what another's must reach for its moves to be tried; and of what is
known, what others must promise.
"""


class Climbing:
    """From options that are known to better ones near them."""

    def __init__(
        self, options: Options, moves: Moves, predictor: Predictor, effort: Effort
    ) -> None:
        self._options, self._moves = options, moves
        self._predictor, self._effort = predictor, effort

    def best_from(self, best: Option, starts: Iterable[Option], policy: Policy) -> Option:
        """The best after small moves of it, and of the starts that come close to it."""
        for start in dict.fromkeys([best, *starts]):
            if start.tokens_per_s >= CLOSE * best.tokens_per_s:
                best = self._options.better(best, self.moved(start, policy)) or best
        return best

    def moved(self, start: Option, policy: Policy) -> Option:
        """Small moves of rows and layers, while one helps."""
        options, best, moves, improved = self._options, start, 0, True
        while improved and moves < self._effort.moves:
            improved = False
            for candidate in self._moves.of(best.candidate):
                least = best.tokens_per_s * WORTH_MOVING
                if not options.possible(candidate, policy):
                    continue
                if self._predictor.bound(candidate).job_tokens_per_s <= least:
                    continue
                if options.is_hopeless(candidate, best):
                    continue
                moves += 1
                option = options.of(candidate)
                if option.tokens_per_s > least and options.in_time(option):
                    best, improved = option, True
        return best
