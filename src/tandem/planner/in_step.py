"""Which plan ends first a job whose requests are all there at once.

Plans are ranked by requests that are out of step, since bounds of thousands of candidates are
closed forms. These are in step: one place too few makes them run once more, and what two plans make
of that differs far more than their ranks do. So the best plans of each kind are lived through.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from tandem.planner.candidate import Candidate
from tandem.planner.engine_plan import engine_plan
from tandem.planner.job_time import JobInWaves, job_in_waves
from tandem.planner.option import Option
from tandem.planner.policies import GPU_ONLY_BESIDE_CPU, POLICIES, Policy
from tandem.planner.question import Question
from tandem.planner.search.families import family, unlike_first
from tandem.planner.search.kinds import Kind
from tandem.planner.search.options import AS_FAST
from tandem.planner.search.search import Search
from tandem.planner.search.simplicity import as_simple, complexity
from tandem.planner.wave_changes import WaveChanges

_NEAR = 0.7
"""Of the tokens per second of the best plan by rank, what others must reach to be lived through."""
_STARTS, _OTHERS = 3, 6
"""Plans that are changed while that makes the job shorter, and those of other kinds to show."""
_UNLIKE, _LOOKED_THROUGH = 3, 12
"""Families to show, and where fewer than these are known, among how many of the best by rank of
other kinds more are looked for.
"""
_HOMES = 2
"""Of layers of the best plans, how many other ones are tried at a time."""
_COARSE = 0.2
"""Of the work that is spent on the chosen plan's job: then most take about 10 ms."""
_WORTH = 1.002
"""Times tokens per second, what a change must bring to be gone on from."""
_NEAR_ALONE = 0.9
"""Of the tokens per second of the best plan, what the best one known of a policy that allows less
must reach for that policy to be searched as if alone.
"""
_FINALISTS, _MOST_FINALISTS = 0.9, 8
"""Of the tokens per second of the best plan, what others must reach, lived through coarsely, to be
looked at closely before one is chosen; and how many are.
"""


@dataclass(frozen=True, slots=True)
class Lived:
    """How many plans are lived through.

    Attributes:
        kinds: the best of so many. changes: so many changed ones of each of the best of all.
        policies: whether the best of each policy that allows less is among them, and each of all
            these is tried with places for even waves before any is gone on from.
    """

    kinds: int
    changes: int
    policies: bool


ALL, FEW = Lived(24, 12, policies=True), Lived(3, 3, policies=False)


def is_in_step(question: Question) -> bool:
    """Whether all requests are there at once, and run beside each other."""
    return question.objective == "throughput" and not question.lengths.duration_s


def live_through(search: Search, option: Option, share: float = 1.0) -> JobInWaves:
    """The job of all requests.

    Args:
        share: of the usual work that is spent on it.
    """
    plan = engine_plan(search.question, search.footprint, option)
    return job_in_waves(search.question, search.predictor, option.candidate, plan, share)


class InStep:
    """Plans of one search, lived through; each once."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._changes = WaveChanges(search.question, search.footprint)
        self._found: dict[Candidate, Option] = {}
        self._seen_closely: dict[Candidate, Option] = {}

    def of(self, option: Option) -> Option:
        """With the tokens per second of its job; as it is where requests are not in step."""
        if not is_in_step(self._search.question):
            return option
        return self._found.get(option.candidate) or self._lived(option, _COARSE)

    def _lived(self, option: Option, share: float) -> Option:
        lengths = self._search.question.lengths
        tokens = lengths.requests * lengths.generated_tokens
        job = live_through(self._search, option, share)
        lived = replace(
            option,
            in_step_per_s=tokens / job.job_s,
            in_step_tpot_s=job.tpot_s,
            in_step_slow_tpot_s=job.slow_tpot_s,
        )
        self._found[option.candidate] = lived
        return lived

    def choice(
        self, policy: Policy, tell: Callable[[Option], object] | None = None
    ) -> Option | None:
        """Of the best plans of each kind, and what small changes make of them, the one whose job is
        the shortest; of those that take about as long, the simplest. None if nothing fits.

        Args:
            tell: is given what is chosen before policies that allow less are searched as if alone:
                hardly ever is that not the choice, and then they are about as good.
        """
        chosen = self._search.choice(policy)
        if chosen is None or not is_in_step(self._search.question):
            return chosen
        found = self._of_choice(policy, chosen)
        told = _simplest(found)
        if tell is not None:
            tell(told)
        for less in _within(policy):
            # what ranks best there may be far from all that was changed here
            best = self._search.best_seen(less)
            near = (
                best is not None
                and self.of(best).tokens_per_s >= _NEAR_ALONE * found[0].tokens_per_s
            )
            # those that allow still less have had their turn
            alone = self._search.choice(less, alone=True) if near else None
            if alone is not None:
                found = _best_first([*found, *self._of_choice(less, alone)])
        return _in_place_of(told, _simplest(found))

    def _of_choice(self, policy: Policy, chosen: Option) -> list[Option]:
        known = [*self._seen_closely, *self._alone(policy, chosen)]
        return self._finalists(self._lived_through(policy, chosen, ALL, known))

    def _finalists(self, found: Sequence[Option]) -> list[Option]:
        """Those that may be the best, lived through closely: which is so may be told only then.

        Args:
            found: lived through coarsely, the best first.
        """
        finalists: list[Option] = []
        most = 0.0
        for option in found:
            if option.tokens_per_s < _FINALISTS * most or len(finalists) == _MOST_FINALISTS:
                break
            finalists.append(self.closely(option))
            most = max(most, finalists[-1].tokens_per_s)
        return _best_first(finalists)

    def closely(self, option: Option) -> Option:
        """Lived through in smaller steps, as what is told of a plan; as it is where requests are
        not in step.
        """
        if not is_in_step(self._search.question):
            return option
        found = self._seen_closely.get(option.candidate)
        if found is None:
            found = self._seen_closely[option.candidate] = self._lived(option, 1.0)
        return found

    def best(self, policy: Policy, known: Iterable[Candidate] = ()) -> Option | None:
        """The one with the shortest job, with less effort.

        Args:
            known: candidates to live through as well, as those of a smaller machine.
        """
        return next(iter(self.bests(policy, known)), None)

    def bests(self, policy: Policy, known: Iterable[Candidate]) -> list[Option]:
        """Those with the shortest jobs, the best first; arguments as of `best`."""
        best = self._search.best(policy)
        if best is None or not is_in_step(self._search.question):
            return [] if best is None else [best]
        return self._finalists(self._lived_through(policy, best, FEW, known))

    def finalists(self, policy: Policy) -> list[Option]:
        """Of a policy, all that were looked at closely and come near the best, the best first."""
        seen = self._seen_closely.values()
        tried = self._search.tried
        found = _best_first(each for each in seen if tried(each.candidate, policy) is not None)
        if not found:
            return []
        return [each for each in found if each.tokens_per_s >= _FINALISTS * found[0].tokens_per_s]

    def fastest(self, policy: Policy, known: Iterable[Candidate]) -> Option | None:
        """Of all that is known of a policy, however simple; None: nothing is.

        Args:
            known: candidates that were found elsewhere, as for machines much like this one.
        """
        if is_in_step(self._search.question):
            found = self.finalists(policy)[:1]
        else:
            best = self._search.best(policy)
            found = [] if best is None else [best]
        found += self._looked_at(known, policy)
        return max(found, key=lambda option: option.tokens_per_s, default=None)

    def _looked_at(self, known: Iterable[Candidate], policy: Policy) -> list[Option]:
        """Those of them that are possible here."""
        tried = (self._search.tried(candidate, policy) for candidate in dict.fromkeys(known))
        return [self.closely(option) for option in tried if option is not None]

    def better(self, chosen: Option, policy: Policy, known: Iterable[Candidate]) -> Option | None:
        """What takes the chosen one's place, of all that is known by now: the simplest of those
        whose job is about as short as the shortest, as that one was of fewer; None: it still is, or
        is as good to what predictions tell, so that it need not be told anew.

        Args:
            known: candidates that were found elsewhere, as for machines much like this one.
        """
        if not is_in_step(self._search.question):
            return None
        found = [chosen, *self._looked_at(known, policy)]
        best = _in_place_of(chosen, _simplest(found))
        return None if best is chosen else best

    def alternatives(self, policy: Policy, chosen: Option) -> Iterator[Option]:
        """The best option of other kinds, best first, among them those that are least alike; some
        may be faster by as little as predictions do not tell, and less simple.
        """
        others = self._search.alternatives(policy, chosen)
        if not is_in_step(self._search.question):
            slower = (each for each in others if each.tokens_per_s <= chosen.tokens_per_s)
            return islice(slower, _LOOKED_THROUGH)
        kind, bests = self._search.kind, dict[Kind, Option]()
        for option in _best_first(self._found.values()):
            if self._search.tried(option.candidate, policy) is not None:
                bests.setdefault(kind(option.candidate), option)
        bests.pop(kind(chosen.candidate), None)
        families = {family(each.candidate) for each in (chosen, *bests.values())}
        looked_through = _OTHERS if len(families) > _UNLIKE else _LOOKED_THROUGH
        ranked = unlike_first(chosen.candidate, islice(others, looked_through))[:_OTHERS]
        found = {each.candidate: each for each in (*bests.values(), *map(self.of, ranked))}
        unlike = unlike_first(chosen.candidate, _best_first(found.values()))
        return iter(_best_first(map(self.closely, unlike[:_OTHERS])))

    def _of_policies(self, policy: Policy) -> Iterator[Option]:
        """The best option found under each policy that allows less."""
        for less in _within(policy):
            best = self._search.best_seen(less)
            if best is not None:
                yield best

    def _alone(self, policy: Policy, chosen: Option) -> list[Candidate]:
        """The best with all requests on the accelerator, which may be far from what ranks best: few
        long outputs that outlast the others end sooner there.
        """
        if chosen.candidate.strategy == "gpu-only":
            return []
        known = GPU_ONLY_BESIDE_CPU, POLICIES["gpu-only"]
        less = next((less for less in known if policy != less and policy.contains(less)), None)
        best = None if less is None else self._search.best(less)
        return [] if best is None else [best.candidate]

    def _lived_through(
        self, policy: Policy, first: Option, lived: Lived, known: Iterable[Candidate] = ()
    ) -> list[Option]:
        """The best first."""
        search = self._search
        again = (search.tried(candidate, policy) for candidate in known)
        starts = [first, *(option for option in again if option is not None)]
        starts += search.contenders(policy, _NEAR)[: lived.kinds]
        if lived.policies:
            starts += self._of_policies(policy)
        found = {option.candidate: self.of(option) for option in starts}
        tried = set(found)
        if lived.policies:
            self._even(policy, found, tried)
        ranked = _best_first(found.values())
        for start in dict.fromkeys([*ranked[:_STARTS], *islice(_unlike(ranked), _STARTS)]):
            self._change(start, policy, found, tried, len(tried) + lived.changes)
        if lived.policies:
            for start in _near_first(found.values()):
                moved = self._rehome(start, policy, found, tried)
                if moved != start:
                    self._change(moved, policy, found, tried, len(tried) + lived.changes)
        return _best_first(found.values())

    def _even(self, policy: Policy, found: dict[Candidate, Option], tried: set[Candidate]) -> None:
        """Add all with places for even waves: what is good but for the last few requests, which run
        once more by themselves, is far from the best until then.
        """
        least = _NEAR * max(option.tokens_per_s for option in found.values())
        for start in list(_unlike(_best_first(found.values()))):
            for candidate in self._changes.with_even_waves(start.candidate):
                if candidate in tried:
                    continue
                tried.add(candidate)
                if self._search.predictor.first_bound(candidate) < least:
                    continue
                option = self._search.tried(candidate, policy)
                if option is not None and option.tokens_per_s >= least:
                    found[candidate] = self.of(option)

    def _rehome(
        self, start: Option, policy: Policy, found: dict[Candidate, Option], tried: set[Candidate]
    ) -> Option:
        """The best after adding it with layers in other homes, the most promising, while one
        helps.
        """
        best, improved = start, True
        while improved:
            improved = False
            waves = self._changes.with_other_waves(best.candidate)
            promising = self._search.with_other_homes(best.candidate, waves, policy)
            for candidate in islice((each for each in promising if each not in tried), _HOMES):
                tried.add(candidate)
                option = self._search.tried(candidate, policy)
                if option is None:
                    continue
                found[candidate] = self.of(option)
                if found[candidate].tokens_per_s > _WORTH * best.tokens_per_s:
                    best, improved = found[candidate], True
        return best

    def _change(
        self,
        start: Option,
        policy: Policy,
        found: dict[Candidate, Option],
        tried: set[Candidate],
        most: int,
    ) -> None:
        """While a change makes the job shorter, and no more than `most` are tried."""
        best, improved = start, True
        while improved:
            improved, least = False, _WORTH * best.tokens_per_s
            for candidate in self._changes.of(best.candidate):
                if candidate in tried or len(tried) >= most:
                    continue
                tried.add(candidate)
                option = self._search.tried(candidate, policy)
                if option is None:
                    continue
                found[candidate] = self.of(option)
                if found[candidate].tokens_per_s > max(least, best.tokens_per_s):
                    best, improved = found[candidate], True


def _within(policy: Policy) -> Iterator[Policy]:
    """Those that allow less, the least first."""
    known = POLICIES.values()
    less = (each for each in known if each != policy and policy.contains(each))
    return iter(sorted(less, key=lambda each: sum(map(each.contains, known))))


def _best_first(options: Iterable[Option]) -> list[Option]:
    return sorted(options, key=lambda option: -option.tokens_per_s)


def _simplest(options: Sequence[Option]) -> Option:
    """Of those whose jobs take about as long as the shortest."""
    least = AS_FAST * max(option.tokens_per_s for option in options)
    return min((each for each in options if each.tokens_per_s >= least), key=complexity)


def _in_place_of(told: Option, best: Option) -> Option:
    """The best, unless what was told is as good to what predictions tell: then it need not be told
    anew.
    """
    as_fast = told.tokens_per_s >= AS_FAST * best.tokens_per_s
    return told if as_fast and as_simple(told, best) else best


def _near_first(options: Iterable[Option]) -> list[Option]:
    """The first of the best kinds, of those that come near the best of all."""
    ranked = _best_first(options)
    least = _NEAR * ranked[0].tokens_per_s
    return [each for each in islice(_unlike(ranked), _STARTS) if each.tokens_per_s >= least]


def _unlike(options: Iterable[Option]) -> Iterator[Option]:
    """The first of each kind, in steps of any size: from others changes lead to the same."""
    kinds: set[tuple[object, ...]] = set()
    for option in options:
        this = option.candidate
        kind = this.strategy, this.streamed > 0, this.mlps, this.on_cpu > 0
        kind += this.device_rows > 0, this.reads_here
        if kind not in kinds:
            kinds.add(kind)
            yield option
