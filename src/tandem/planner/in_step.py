"""Which plan ends first a job whose requests are all there at once.

Plans are ranked by requests that are out of step, since bounds of thousands of candidates are
closed forms. These are in step: one place too few makes them run once more, and what two plans make
of that differs far more than their ranks do. So the best plans of each kind are lived through.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from tandem.planner.candidate import Candidate
from tandem.planner.engine_plan import engine_plan
from tandem.planner.job_time import JobInWaves, job_in_waves
from tandem.planner.option import Option
from tandem.planner.places import num_places
from tandem.planner.policies import GPU_ONLY_BESIDE_CPU, POLICIES, Policy
from tandem.planner.question import Question
from tandem.planner.search.candidates import Candidates
from tandem.planner.search.options import AS_FAST
from tandem.planner.search.search import Search
from tandem.planner.search.simplicity import complexity

_NEAR = 0.7
"""Of the tokens per second of the best plan by rank, what others must reach to be lived through."""
_STARTS, _OTHERS = 3, 6
"""Plans that are changed while that makes the job shorter, and those of other kinds to show."""
_COARSE = 0.2
"""Of the work that is spent on the chosen plan's job: then most take about 10 ms."""
_WORTH = 1.002
"""Times tokens per second, what a change must bring to be gone on from."""


@dataclass(frozen=True, slots=True)
class Lived:
    """How many plans are lived through.

    Attributes:
        kinds: the best of so many. changes: so many changed ones.
    """

    kinds: int
    changes: int


ALL, FEW = Lived(kinds=10, changes=20), Lived(kinds=3, changes=5)


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
        self._candidates = Candidates(search.question, search.footprint)
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

    def choice(self, policy: Policy) -> Option | None:
        """Of the best plans of each kind, and what small changes make of them, the one whose job is
        the shortest; of those that take about as long, the simplest. None if nothing fits.
        """
        chosen = self._search.choice(policy)
        if chosen is None or not is_in_step(self._search.question):
            return chosen
        found = self._lived_through(policy, chosen, ALL, self._alone(policy, chosen))
        least = AS_FAST * found[0].tokens_per_s
        return self.closely(
            min((each for each in found if each.tokens_per_s >= least), key=complexity)
        )

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
        best = self._search.best(policy)
        if best is None or not is_in_step(self._search.question):
            return best
        return self._lived_through(policy, best, FEW, known)[0]

    def alternatives(self, policy: Policy, chosen: Option) -> Iterator[Option]:
        """The best option of other kinds, none of them better, best first."""
        others = self._search.alternatives(policy, chosen)
        if is_in_step(self._search.question):
            others = iter(_best_first(map(self.closely, islice(others, _OTHERS))))
        return (each for each in others if each.tokens_per_s <= chosen.tokens_per_s)

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
        found = {option.candidate: self.of(option) for option in starts}
        tried, most = set(found), len(found) + lived.changes
        for start in _best_first(found.values())[:_STARTS]:
            self._change(start, policy, found, tried, most)
        return _best_first(found.values())

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
            for candidate in self._changes(best.candidate):
                if candidate in tried or len(tried) >= most:
                    continue
                tried.add(candidate)
                option = self._search.tried(candidate, policy)
                if option is None:
                    continue
                found[candidate] = self.of(option)
                if found[candidate].tokens_per_s > max(least, best.tokens_per_s):
                    best, improved = found[candidate], True

    def _changes(self, candidate: Candidate) -> Iterator[Candidate]:
        """Places for as many requests in the last wave as in those before it; for one wave less;
        and steps of twice the size, or half.
        """
        question = self._search.question
        requests = question.lengths.requests
        waves = math.ceil(requests / num_places(question, candidate))
        for number in (waves, waves - 1):
            if number:
                yield from self._with_rows(candidate, math.ceil(requests / number))
        sizes = {question.step_of(step): step for step in question.steps}
        here = question.step_of(candidate.step_tokens)
        for size in (2 * here, here // 2):
            if size in sizes:
                yield candidate._replace(step_tokens=sizes[size])

    def _with_rows(self, candidate: Candidate, rows: int) -> Iterator[Candidate]:
        if not candidate.host_rows:
            yield candidate._replace(device_rows=rows)
            return
        hosted = rows - candidate.device_rows
        if hosted > 0:
            here = self._candidates.prompts_here_of(candidate, hosted)
            yield candidate._replace(host_rows=hosted, prompts_here=here)


def _best_first(options: Iterable[Option]) -> list[Option]:
    return sorted(options, key=lambda option: -option.tokens_per_s)
