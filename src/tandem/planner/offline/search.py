"""The search for an offline plan: candidates by a bound, the best of them by virtual time."""

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice
from typing import NamedTuple

from tandem.planner.aside import Aside, InTurn
from tandem.planner.offline.block_promise import BlockPromises
from tandem.planner.offline.candidate import BlockCandidate, KVInFewBits
from tandem.planner.offline.candidates import BlockCandidates
from tandem.planner.offline.moves import BlockMoves
from tandem.planner.offline.occupancy import Occupancy
from tandem.planner.offline.option import (
    BETTER,
    BlockOption,
    better,
    family_of,
    is_beside,
    is_near,
    kind_of,
    may_lead,
)
from tandem.planner.offline.policies import OfflinePolicy, policies_within
from tandem.planner.offline.rates import BlockPrediction, block_rates, job_tokens_per_s, phases
from tandem.planner.offline.times import BlockTimes
from tandem.planner.question import Question

_WORTH_MOVING = 1.001
_AS_GOOD = 0.995
"""Of the best prediction: what lies closer is within what predictions are off by."""
_ROUNDED: tuple[KVInFewBits, ...] = ("none", "host", "all")
"""KV in few bits, the least first."""
_LIKELY = "flexgen"
"""Of the policies that allow less than `auto`, the one that mostly promises enough."""


@dataclass(frozen=True, slots=True)
class _Effort:
    """How much virtual time is spent on.

    Attributes:
        tries: candidates by their bounds. moves: from the best of them.
        policies: whether `auto` also searches every policy as if alone. all: whether what does not
            exceed what is known is tried, for alternatives' sake.
    """

    tries: int
    moves: int
    policies: bool
    all: bool


_FULL, _REDUCED = _Effort(8, 12, policies=True, all=True), _Effort(2, 3, policies=False, all=False)


class OfflineSearch:
    """Finds the best option of a question under a policy.

    Args:
        like: a search for a machine much like this one, after which less effort will do.
        aside: who may search under other policies meanwhile.
    """

    def __init__(
        self,
        question: Question,
        like: "OfflineSearch | None" = None,
        aside: Aside | None = None,
    ) -> None:
        self.question, self._aside = question, aside or InTurn()
        self._effort = _FULL if like is None else _REDUCED
        self.times = BlockTimes(question, None if like is None else like.times)
        self.footprint = self.times.footprint
        self.candidates = BlockCandidates(
            question, self.times.precisions, self.footprint, self.times.bound
        )
        self.promises = BlockPromises(question, self.candidates, self.times.bound)
        self._occupancy = Occupancy(question.lengths)
        self._moves = BlockMoves(question, self.candidates, question.block_size)
        self._options: dict[BlockCandidate, BlockOption] = {}
        self._found: dict[OfflinePolicy, BlockOption | None] = {}
        self._coming: dict[OfflinePolicy, Callable[[], _Searched]] = {}

    def best(
        self, policy: OfflinePolicy, known: Iterable[BlockCandidate] = ()
    ) -> BlockOption | None:
        """The best option; None if nothing fits. Under `auto`, none of a policy's is better.

        Args:
            known: candidates to try as well, as those of a smaller machine.
        """
        before: BlockOption | None = None
        for each in known:
            candidate = self.footprint.placed(each)
            if self.candidates.possible(candidate, policy):
                before = better(before, self.option(candidate))
        if before is not None and not self._effort.all:
            return self._search(policy, before)
        every: Sequence[OfflinePolicy] = ()
        if policy.name == "auto" and self._effort.policies:
            every = policies_within(policy.orders)
        for likely in every:
            if likely.name == _LIKELY:
                self._begin(likely)
        best = self._refined(better(before, self._searched(policy)), policy)
        for narrower in every:
            best = better(best, self._exceeding(narrower, best))
        return best

    def simplest(self, policy: OfflinePolicy, best: BlockOption) -> BlockOption:
        """Of what was tried and is as good as the best: what reads prompts in the fewest blocks,
        where weights come in every pass and places stand empty before each of the others; and what
        recomputes nothing, where shares may then be solved anew; then what has least KV in few
        bits, which is rounded. Where there are prompts only, what has no KV on the host, which
        nothing would ever read, and streams fewest layers.
        """
        streams = best.candidate.streamed > 0
        prompts_only = self.question.lengths.generated_tokens <= 1

        def order(option: BlockOption) -> tuple[tuple[bool, int], int, bool, int, bool, float]:
            idle = option.candidate.host_rows > 0, option.candidate.streamed
            blocks = option.prediction.rates.blocks if streams else 0
            fixed = policy.adapts and option.candidate.recomputed_tokens > 0
            return (
                idle if prompts_only else (False, 0),
                blocks,
                fixed,
                _ROUNDED.index(option.candidate.kv_in_few_bits),
                option is not best,
                -option.tokens_per_s,
            )

        as_good = [
            option
            for option in self._options.values()
            if option.tokens_per_s > best.tokens_per_s * _AS_GOOD
            and self.candidates.possible(option.candidate, policy)
        ]
        return min((best, *as_good), key=order)

    def shortlisted(self, policy: OfflinePolicy) -> BlockOption | None:
        """The best of what is found without policies that allow less being searched as if alone."""
        return self._refined(self._searched(policy), policy)

    def promising(
        self, policy: OfflinePolicy, least: float = 0.0
    ) -> Iterator[tuple[float, BlockCandidate]]:
        """Candidates by their bounds, the highest first, if that is more than `least`; of a block,
        or of one of its starts, that promises less than what is asked for, none is made.
        """
        numbers = count()
        heap: list[_Entry] = []
        for block in self.candidates.blocks(policy):
            promise = self.promises.tokens_per_s(block, policy)
            heap.append((-promise, _BLOCK, 0, 0, next(numbers), block))
        heapq.heapify(heap)
        while heap and -heap[0][0] > least:
            minus_most_per_s, made, _, _, _, found = heapq.heappop(heap)
            if made == _PRICED:
                yield -minus_most_per_s, found
            elif made == _CANDIDATE:
                # rows as they fall take long to price, and most candidates are never looked at
                place = _PRICED, found.batches, found.streamed, next(numbers)
                heapq.heappush(heap, (-self.bound_tokens_per_s(found), *place, found))
            elif made == _BLOCK:
                for start in self.candidates.starts(found, policy):
                    promise = self.promises.of_start(start, policy)
                    heapq.heappush(heap, (-promise, _START, 0, 0, next(numbers), start))
            else:
                for candidate in self.candidates.of_start(found, policy):
                    place = _CANDIDATE, candidate.batches, candidate.streamed, next(numbers)
                    bound = self._bound_tokens_per_s(candidate, self._least_tail_s(candidate))
                    heapq.heappush(heap, (-bound, *place, candidate))

    def option(self, candidate: BlockCandidate) -> BlockOption:
        """With its prediction."""
        if candidate not in self._options:
            self._options[candidate] = BlockOption(candidate, self._predict(candidate))
        return self._options[candidate]

    def alternatives(self, policy: OfflinePolicy, chosen: BlockOption) -> Iterator[BlockOption]:
        """The best options tried of each kind that the chosen one is not, best first; of such as
        differ by the home of one sequence, the best.
        """
        seen, shown = {kind_of(chosen.candidate)}, [chosen.candidate]
        for option in sorted(self._options.values(), key=lambda option: -option.tokens_per_s):
            kind = kind_of(option.candidate)
            if kind in seen or any(is_beside(option.candidate, other) for other in shown):
                continue
            if self.candidates.possible(option.candidate, policy):
                seen.add(kind)
                shown.append(option.candidate)
                if option.tokens_per_s <= chosen.tokens_per_s:
                    yield option

    def bound_tokens_per_s(self, candidate: BlockCandidate) -> float:
        """What no schedule of the candidate exceeds in such passes as are predicted."""
        return self._bound_tokens_per_s(candidate, self._tail_s(candidate))

    def _bound_tokens_per_s(self, candidate: BlockCandidate, tail_s: float) -> float:
        bound = self.times.bound
        prefill_s, pass_s = bound.prefill_s(candidate), bound.decode_s(candidate)
        return block_rates(self.question.lengths, candidate, prefill_s, pass_s, tail_s).tokens_per_s

    def _predict(self, candidate: BlockCandidate) -> BlockPrediction:
        time = self.times.time(candidate)
        rates = block_rates(
            self.question.lengths,
            candidate,
            time.prefill.period_s,
            time.decode.period_s,
            self._tail_s(candidate),
        )
        prompts, tokens = phases(self.question, time, rates)
        return BlockPrediction(rates, time, self.bound_tokens_per_s(candidate), prompts, tokens)

    def _tail_s(self, candidate: BlockCandidate) -> float:
        """Of passes for sequences longer than the mean. What sequences take is counted with the
        means already, so that only what a pass takes for one of each batch is left; or what passes
        and programs over prompts take beyond blocks of mean length, of the numbers of sequences
        that they have as the engine fills places.
        """
        bound, places = self.times.bound, candidate.block_rows
        course = self._occupancy.course(places, streams=candidate.streamed > 0)
        more_s = -self._occupancy.passes_by_means(places) * bound.decode_s(candidate)
        for alike in course.passes:
            more_s += alike.number * bound.decode_s(candidate.left(alike.rows))
        blocks = math.ceil(self.question.lengths.requests / places)
        fills_s = -blocks * bound.prefill_s(candidate)
        for alike in course.fills:
            fills_s += alike.number * bound.prefill_s(candidate.left(alike.rows))
        refills = sum(alike.number for alike in course.fills) - 1
        lost_s = refills * bound.ahead_s(candidate)
        least_s = self._least_tail_s(candidate)
        return max(least_s, more_s + max(0.0, fills_s) + lost_s)

    def _least_tail_s(self, candidate: BlockCandidate) -> float:
        """Of any kernels."""
        passes = self._occupancy.tail_passes(candidate.block_rows)
        if not passes:
            return 0.0
        alone = replace(candidate, resident_rows=1, streamed_rows=0, cpu_rows=0)
        return passes * self.times.bound.decode_s(replace(alone, recomputed_tokens=0))

    def _begin(self, policy: OfflinePolicy) -> None:
        """It may be searched."""
        if policy not in self._found and policy not in self._coming:
            self._coming[policy] = self._aside.begin(partial(self._alone, policy))

    def _searched(self, policy: OfflinePolicy) -> BlockOption | None:
        if policy not in self._found:
            wait = self._coming.pop(policy, None)
            self._found[policy] = self._search(policy) if wait is None else self._taken(wait())
        return self._found[policy]

    def _taken(self, searched: "_Searched") -> BlockOption | None:
        """As if it had been searched here: what was known before stays first, and the same."""
        for option in searched.options:
            self._options.setdefault(option.candidate, option)
        return None if searched.best is None else self._options[searched.best]

    def _alone(self, policy: OfflinePolicy) -> "_Searched":
        best = self._search(policy)
        return _Searched(None if best is None else best.candidate, tuple(self._options.values()))

    def _exceeding(self, policy: OfflinePolicy, best: BlockOption | None) -> BlockOption | None:
        """The best option of a policy that may exceed the best; else what promises most, as an
        alternative.
        """
        if best is None or policy in self._found:
            return self._searched(policy)
        first = next(self.promising(policy), None)
        if first is None:
            return None
        most_per_s, candidate = first
        return self._searched(policy) if is_near(most_per_s, best) else self.option(candidate)

    def _search(
        self, policy: OfflinePolicy, known: BlockOption | None = None
    ) -> BlockOption | None:
        """Try what promises most, and move the best.

        Args:
            known: what does not exceed it is of no use.
        """
        best = known
        starts: dict[tuple[bool, bool, bool], BlockOption | None] = {}
        if known is not None:
            starts[family_of(known.candidate)] = known
        least = 0.0 if known is None else known.tokens_per_s * BETTER
        for most_per_s, candidate in islice(self.promising(policy, least), self._effort.tries):
            family = family_of(candidate)
            before = starts.get(family)
            if best is not None and not may_lead(most_per_s, best, before):
                continue
            option = self.option(candidate)
            best, starts[family] = better(best, option), better(before, option)
        ends: list[BlockOption] = []
        for start in sorted(filter(None, starts.values()), key=lambda each: -each.tokens_per_s):
            if best is not None and is_near(start.tokens_per_s, best):
                ends.append(self._moved(start, policy, best.tokens_per_s))
                best = better(best, ends[-1])
        for end in ends:
            for other in (
                self._moves.cut(end.candidate, policy),
                self._moves.apart(end.candidate, policy),
            ):
                best = self._beyond(other, best, policy)
        return best

    def _beyond(
        self, other: BlockCandidate | None, best: BlockOption | None, policy: OfflinePolicy
    ) -> BlockOption | None:
        """The best, or what is found from another candidate, which is tried behind all other moves,
        so that what these lead to is not missed; None: there is none.
        """
        if other is None or best is None or not is_near(self.bound_tokens_per_s(other), best):
            return best
        option = self.option(other)
        if is_near(option.tokens_per_s, best):
            option = self._moved(option, policy)
        return better(best, option)

    def _refined(self, best: BlockOption | None, policy: OfflinePolicy) -> BlockOption | None:
        return self._rounded(best, policy) if best is not None and policy.adapts else best

    def _rounded(self, best: BlockOption, policy: OfflinePolicy) -> BlockOption:
        """The best option's block by shares of its linear programmes, one for each way to run it,
        if any of them allows for more.
        """
        # the solver is loaded for those who plan, not with every engine of blocks
        from tandem.planner.offline.relaxation.block_programmes import BlockProgrammes
        from tandem.planner.offline.relaxation.rounding import rounded_shares

        least, lengths = best.tokens_per_s * _WORTH_MOVING, self.question.lengths
        layers, tries = self.question.model.num_layers, dict[BlockCandidate, float]()
        for relaxed in BlockProgrammes(self.times).of_block(best.candidate):
            if job_tokens_per_s(lengths, best.candidate, relaxed.shares.block_s) > least:
                for candidate in rounded_shares(relaxed, self.candidates, layers, policy):
                    tries[candidate] = self.bound_tokens_per_s(candidate)
        promising = sorted(tries, key=lambda candidate: -tries[candidate])
        for candidate in promising[: self._effort.tries]:
            if tries[candidate] > least:
                best = better(best, self.option(candidate)) or best
        return best

    def _moved(
        self, start: BlockOption, policy: OfflinePolicy, known_per_s: float = 0.0
    ) -> BlockOption:
        """Small changes, what promises most first, and more than what is known, while one helps."""
        best, moves, improved = start, 0, True
        while improved and moves < self._effort.moves:
            improved = False
            least = best.tokens_per_s * _WORTH_MOVING
            promising = self._promising_moves(best, policy, max(least, known_per_s))
            for _, candidate in islice(promising, self._effort.moves - moves):
                moves += 1
                option = self.option(candidate)
                if option.tokens_per_s > least:
                    best, improved = option, True
                    break
        return best

    def _promising_moves(
        self, best: BlockOption, policy: OfflinePolicy, least: float
    ) -> list[tuple[float, BlockCandidate]]:
        """Small changes by their bounds, the highest first, if these exceed the least."""
        bounds = list[tuple[float, BlockCandidate]]()
        for candidate in self._moves.of(best.candidate, policy):
            # rows as they fall take long to price
            most_per_s = self._bound_tokens_per_s(candidate, self._least_tail_s(candidate))
            if most_per_s > least and (bound := self.bound_tokens_per_s(candidate)) > least:
                bounds.append((bound, candidate))
        return sorted(bounds, key=lambda bound: -bound[0])


class _Searched(NamedTuple):
    """What was found under a policy, of all options that are known by then."""

    best: BlockCandidate | None
    options: tuple[BlockOption, ...]


_BLOCK, _START, _CANDIDATE, _PRICED = range(4)
_Entry = tuple[float, int, int, int, int, BlockCandidate]
"""Tokens per second, below 0; what it is, blocks and starts first; of a candidate, batches and
layers streamed; a number that is no other's.
"""
