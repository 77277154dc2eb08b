"""What no plan can exceed: the best of all ranges of rows, of all ways to run."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from math import inf
from typing import NamedTuple

from tandem.planner.footprint import Footprint
from tandem.planner.policies import Policy
from tandem.planner.question import Question
from tandem.planner.relaxation.bounded import Bounded, Ceiling, Start
from tandem.planner.relaxation.cohort_times import has_closed_form, least_token_s
from tandem.planner.relaxation.homes import LayerHome
from tandem.planner.relaxation.prices import Prices, ServedKey
from tandem.planner.relaxation.rows import NO_ROWS, Range, Rows
from tandem.planner.relaxation.shares import least_shares
from tandem.planner.relaxation.sweep_kinds import WeightedKinds, least_ratio, weighted_kinds
from tandem.planner.relaxation.way import Way, homes_of, joined, ways
from tandem.planner.room import MAX_COHORT_ROWS

LEAF_RATIO = 1.015
"""Of the tokens that a sweep serves; a bound is at most this much too high."""


class _Unsolved(NamedTuple):
    """Some rows of one way whose programme was not solved.

    Attributes:
        start: of those of which these are half.
        is_known: that they promise no more was found without a programme.
    """

    way: Way
    rows: Rows
    start: Start | None = None
    is_known: bool = False


class Ceilings:
    """Bounds of one question under one policy.

    Ranges of rows are bounded as a whole, and halved, the most promising first, down to a grid that
    depends on the question's workload only. So more of a resource never lowers the result. Ways
    that differ little are bounded as one, and apart in the most promising ranges alone that are
    not halved any more.

    Args:
        homes: that layers may have; None: those of the policy's candidates.
        steps: sizes of steps as candidates name them; None: all that the question allows.
        leaf_ratio: of the tokens that a range's sweeps serve, where it is not halved any more.
        executed: as in `Prices`.
    """

    def __init__(
        self,
        question: Question,
        footprint: Footprint,
        policy: Policy,
        homes: Sequence[LayerHome] | None = None,
        steps: Sequence[int] | None = None,
        leaf_ratio: float = LEAF_RATIO,
        *,
        executed: bool = False,
    ) -> None:
        # rows of a range are bounded by the fewest, and by lines: below stairs, not along them
        question = question.without_tiles()
        self._q, self._leaf_ratio = question, leaf_ratio
        self._steps = question.steps if steps is None else steps
        self._prices = Prices(question, footprint, executed=executed)
        self._queue: list[tuple[float, int, Bounded | _Unsolved]] = []
        self._pushed = 0
        self._kinds: dict[ServedKey, list[WeightedKinds]] = {}
        self.programmes = 0
        allowed = homes_of(policy, question, footprint) if homes is None else homes
        alone, layers = not question.cohorts_are_of_use, question.model.num_layers
        every = ways(policy, allowed, layers, alone=alone, may_read_here=question.may_read_here)
        # where prompts are read decides how soon, which a bound on the time per token goes by
        self._members = joined(every, reading=question.tpot_bound_s is None)
        for way in self._members:
            for rows in self._all_rows(way):
                self._push(inf, _Unsolved(way, rows))

    def ceiling(self) -> Ceiling:
        """The bound."""
        return Ceiling(tuple(islice(self.leaves(), 1)), self.programmes)

    def with_runners_up(self, ranges: int) -> Ceiling:
        """The bound, and the most promising ranges."""
        return Ceiling(tuple(islice(self.leaves(), ranges)), self.programmes)

    def leaves(self) -> Iterator[Bounded]:
        """Ranges that are not halved any more, the most promising first."""
        while self._queue:
            minus_most, _, bounded = heapq.heappop(self._queue)
            if isinstance(bounded, Bounded):
                start, tokens_per_s = bounded.shares.start, bounded.tokens_per_s
            elif bounded.is_known and self._is_parted(bounded):
                start, tokens_per_s = None, -minus_most
            else:
                self._solve(bounded, -minus_most)
                continue
            halves = list(self._halves(bounded.way, bounded.rows))
            members = self._members.get(bounded.way, ())
            if not halves and len(members) > 1:
                for way in members:
                    self._push(tokens_per_s, _Unsolved(way, bounded.rows))
            elif isinstance(bounded, Bounded) and not halves:
                yield replace(bounded, shares=replace(bounded.shares, start=None))
            for rows in halves:
                slower = self._slower(bounded.way, rows, bounded.rows)
                self._push(tokens_per_s / slower, _Unsolved(bounded.way, rows, start))

    def _is_parted(self, rows: "Bounded | _Unsolved") -> bool:
        """Whether what it covers is bounded more closely in parts."""
        return len(self._members.get(rows.way, ())) > 1 or self._is_halved(rows)

    def _is_halved(self, rows: "Bounded | _Unsolved") -> bool:
        return next(self._halves(rows.way, rows.rows), None) is not None

    def _halves(self, way: Way, rows: Rows) -> Iterator[Rows]:
        """Nothing if the ends are close enough; else the range is halved that serves more."""
        through, cohort = rows.through, rows.cohort
        served = self._prices.served
        least = served(way, through.least, cohort.least)
        most = served(way, through.most, cohort.most)
        if most <= least * self._leaf_ratio:
            return
        if served(way, through.most, cohort.least) - least >= (most - least) / 2:
            yield from (rows._replace(through=half) for half in through.halves())
        else:
            yield from (rows._replace(cohort=half) for half in cohort.halves())

    def _slower(self, way: Way, half: Rows, whole: Rows) -> float:
        """How many times the time per token is at least, found without a programme: 1 if not known.

        Half a range that begins where the whole one does has the same sweeps, or longer ones, of
        which each serves fewer tokens.
        """
        same_least = (half.through.least, half.cohort.least) == (
            whole.through.least, whole.cohort.least,
        )  # fmt: skip
        if not same_least or self._q.tpot_bound_s is not None:
            return 1.0
        return least_ratio(self._weighted(way, half), self._weighted(way, whole))

    def _weighted(self, way: Way, rows: Rows) -> list[WeightedKinds]:
        key = self._prices.served_key(way, rows)
        found = self._kinds.get(key)
        if found is None:
            served = self._prices.span(way, rows).most_served
            found = [weighted_kinds(kinds, served) for kinds in self._prices.kinds(way, rows)]
            self._kinds[key] = found
        return found

    def _solve(self, unsolved: "_Unsolved", at_most: float) -> None:
        way, rows = unsolved.way, unsolved.rows
        through, cohort = rows.through.least, rows.cohort.least
        served = self._prices.served(way, through, cohort)
        if not self._q.prompts_keep_up(through, served, rows.step_tokens):
            return
        if not unsolved.is_known and has_closed_form(self._prices, way):
            token_s = least_token_s(self._prices, way, rows)
            if token_s < inf:
                self._push(min(at_most, 1 / token_s), unsolved._replace(is_known=True))
            return
        self.programmes += 1
        # shares are of interest of those alone that are not halved, and depend on none before
        begin = unsolved.start if self._is_halved(unsolved) else None
        shares = least_shares(self._prices, way, rows, begin)
        if shares is not None:
            tokens_per_s = min(at_most, 1 / shares.token_s)
            self._push(tokens_per_s, Bounded(way, rows, tokens_per_s, shares))

    def _push(self, at_most: float, bounded: "Bounded | _Unsolved") -> None:
        self._pushed += 1
        heapq.heappush(self._queue, (-at_most, self._pushed, bounded))

    def _all_rows(self, way: Way) -> Iterator[Rows]:
        for step in self._steps:
            most = self._q.most_rows(step)
            cohort = Range(1, min(most, MAX_COHORT_ROWS))
            if not way.has_cohort:
                yield Rows(Range(1, most), step_tokens=step)
            elif way.alone:
                yield Rows(NO_ROWS, cohort, step)
            elif most > 1:
                yield Rows(Range(1, most - 1), cohort, step)
