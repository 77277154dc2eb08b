"""How many tokens a step may compute: fewer leave more room for KV, more read prompts sooner."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile
from math import log2

from tandem.plan.weights import STREAM_SLOTS
from tandem.planner.candidate import Candidate, Strategy
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.footprint import Footprint
from tandem.planner.passing import enough_prompts_here
from tandem.planner.policies import Policy
from tandem.planner.question import Question
from tandem.planner.search.candidates import Candidates

STEP_SIZES = tuple(2**power for power in range(7, 14))
"""Among which a plan may choose: 128 to 8,192 tokens, from a few rows' to a large card's."""

_MORE = 2
"""Layers more or fewer on the accelerator that are tried with each size."""


def with_steps_that_fit(question: Question, policy: Policy) -> Question:
    """The question in steps no larger than leave room for anything to run; if nothing ever fits, in
    the smallest.
    """
    given = question.max_num_batched_tokens
    smaller = sorted((size for size in question.step_sizes if size < given), reverse=True)
    for size in (given, *smaller):
        question = replace(question, max_num_batched_tokens=size)
        if next(Candidates(question, Footprint(question)).of(policy), None) is not None:
            break
    return question


def strategies_beside_weights(
    question: Question, footprint: Footprint, policy: Policy
) -> set[Strategy]:
    """Of a policy's, those for which all layers leave room in steps of the question's size."""
    looked_up = Elsewhere(embedding=footprint.embedding_bytes > 0)
    if footprint.device_kv_bytes("gpu-only", looked_up, 1) < 0:
        return set()  # which takes the longest to find by trying
    candidates = Candidates(question, footprint)
    return {
        strategy
        for strategy in policy.strategies
        if _leaves_layers(next(candidates.of(replace(policy, strategies=(strategy,))), None))
    }


def beside_weights(question: Question, policy: Policy) -> list[Candidate]:
    """A policy's candidates that leave all layers on the accelerator, which move least and come
    first.
    """
    footprint = Footprint(question)
    looked_up = Elsewhere(embedding=footprint.embedding_bytes > 0)
    if footprint.device_kv_bytes("gpu-only", looked_up, 1) < 0:
        return []
    return list(takewhile(_leaves_layers, Candidates(question, footprint).of(policy)))


def _leaves_layers(candidate: Candidate | None) -> bool:
    """Whether it moves nothing but embeddings."""
    return candidate is not None and candidate.elsewhere in (Elsewhere(), Elsewhere(embedding=True))


class StepSizes:
    """About the same placement in steps of other sizes, with the rows that then fit.

    What a step may compute has to have room in its workspace beside weights and KV, and is the
    chunk that prompts are read in: a sweep that reads a smaller one takes less time, and more
    sweeps are needed.
    """

    def __init__(self, question: Question, footprint: Footprint, candidates: Candidates) -> None:
        self._q, self._candidates = question, candidates
        self._room = footprint.room
        self._looks_up = footprint.embedding_bytes > 0
        self._found: dict[Candidate, list[Candidate]] = {}

    def of(self, candidate: Candidate) -> list[Candidate]:
        """The nearest sizes first."""
        if candidate not in self._found:  # several policies have the same best
            self._found[candidate] = list(self._find(candidate))
        return self._found[candidate]

    def _find(self, candidate: Candidate) -> Iterator[Candidate]:
        here = log2(self._q.step_of(candidate.step_tokens))
        for step in sorted(self._q.steps, key=lambda step: abs(log2(self._q.step_of(step)) - here)):
            if step == candidate.step_tokens:
                continue
            smaller = log2(self._q.step_of(step)) < here
            for elsewhere in around(candidate.elsewhere, self._q.movable_layers, smaller):
                yield from self._resized(candidate, elsewhere, step)
                if self._may_read_here(candidate):
                    # steps of another size read more prompts at once, or leave them more room
                    other = candidate._replace(prompts_here=int(not candidate.reads_here))
                    yield from self._resized(other, elsewhere, step)
            if self._looks_up and candidate.elsewhere == Elsewhere():
                # both together may leave room for a request that neither does by itself
                yield from self._resized(candidate, Elsewhere(embedding=True), step)
            if smaller:
                yield from self._with_most_resident(candidate, step)

    def _with_most_resident(self, candidate: Candidate, step: int) -> Iterator[Candidate]:
        """With as few layers streamed, or computed on the CPU, as leave room for any request."""
        here = candidate.elsewhere
        for count in range(max(here.streamed, here.on_cpu) - _MORE):
            moved = _with(here, count)
            found = [] if moved is None else list(self._resized(candidate, moved, step))
            if found:
                yield from found
                return

    def _resized(self, candidate: Candidate, here: Elsewhere, step: int) -> Iterator[Candidate]:
        """With as many rows on the accelerator as fit, or as there were, since fewer keep a bound
        on the time per token; and beside them those on the host for whose prompts there is room.
        Where these are fewer than there were, also with all of those, and halfway between, for
        which rows on the accelerator give way: they cost it no attention. A larger step has room
        for more on the host, among which weights are shared out that come over the link: also with
        as many more of them as it has tokens.
        """
        if candidate.device_share:
            yield self._candidates.split(here, candidate.host_rows, step)
            return
        device = 0
        if candidate.device_rows:
            device = self._most_on_device(candidate, here, step, min(1, candidate.host_rows))
            if not device:
                return
        moved = candidate.with_elsewhere(here)._replace(step_tokens=step)
        tried: list[int] = []
        for rows in dict.fromkeys((device, min(device, candidate.device_rows))):
            there = moved._replace(device_rows=rows)
            for limit in self._limits_on_host(candidate, step):
                hosted = self._most_hosted(there, limit)
                if hosted is not None:
                    tried.append(hosted)
                    yield self._with_hosted(there, hosted)
        if not device or tried[:1] == [candidate.host_rows]:
            return
        fewest = min(tried, default=0)
        for hosted in (fewest + candidate.host_rows) // 2, candidate.host_rows:
            rows = self._most_on_device(candidate, here, step, hosted)
            if rows and hosted not in tried:
                yield self._with_hosted(moved._replace(device_rows=rows), hosted)

    def _may_read_here(self, candidate: Candidate) -> bool:
        hosted = candidate.host_rows and not candidate.device_share
        return bool(hosted) and self._q.may_read_here

    def _with_hosted(self, candidate: Candidate, hosted: int) -> Candidate:
        """With so many requests on the host, and as many prompts on the accelerator as they need in
        steps of its size.
        """
        here = self._prompts_here(candidate, hosted)
        return candidate._replace(host_rows=hosted, prompts_here=here)

    def _prompts_here(self, candidate: Candidate, hosted: int) -> int:
        """What they need of it."""
        if not (candidate.reads_here and hosted):
            return 0
        return enough_prompts_here(self._q, candidate._replace(host_rows=hosted))

    def _most_on_device(self, candidate: Candidate, here: Elsewhere, step: int, hosted: int) -> int:
        resized = candidate._replace(step_tokens=step)
        return self._candidates.most_on_device(
            candidate.strategy,
            here,
            hosted,
            passes=candidate.passes,
            step_tokens=step,
            prompts_here=self._prompts_here(resized, hosted),
        )

    def _limits_on_host(self, candidate: Candidate, step: int) -> Iterator[int]:
        """As many rows as there are, and in a larger step as many more as it has tokens; last those
        that there are.
        """
        here, there = self._q.step_of(candidate.step_tokens), self._q.step_of(step)
        if there > here and candidate.host_rows and candidate.elsewhere.streamed:
            yield min(candidate.host_rows * there // here, self._q.most_rows(step))
        yield candidate.host_rows

    def _most_hosted(self, candidate: Candidate, limit: int) -> int | None:
        """As many rows on the host as a limit says, or as leave prompts their room in a step; None
        if not even one.
        """
        least = min(2 if candidate.halves else 1, candidate.host_rows)

        room = self._room(candidate.strategy, candidate.elsewhere, candidate.step_tokens)
        device, passes = candidate.device_rows, candidate.passes

        def fits(hosted: int) -> bool:
            here = self._prompts_here(candidate, hosted)
            return room.holds(device, hosted, passes, prompts_here=here)

        if fits(limit):
            return limit
        if not fits(least):  # as where too few layers are elsewhere, of most numbers of them
            return None
        low, high = least, limit - 1
        while low < high:
            middle = (low + high + 1) // 2
            if fits(middle):
                low = middle
            else:
                high = middle - 1
        return low


def around(here: Elsewhere, layers: int, smaller: bool) -> Iterator[Elsewhere]:
    """The same homes of layers, and those with the embeddings or a few more layers on the
    accelerator if steps are smaller, or with fewer.
    """
    yield here
    if here.embedding and smaller:
        yield here._replace(embedding=False)
    for more in range(1, _MORE + 1):
        moved = _with(here, max(here.streamed, here.on_cpu) + (-more if smaller else more))
        if moved is not None and moved.streamed + moved.whole_on_cpu + moved.mlps_on_cpu <= layers:
            yield moved


def _with(here: Elsewhere, count: int) -> Elsewhere | None:
    """With so many layers streamed, or on the CPU, as some are here; None if that cannot be, and
    where layers are read from disk or mixtures apart, whose numbers hang on others.
    """
    if here.on_disk or here.experts or count < 0 or not (here.streamed or here.on_cpu):
        return None
    if count == 0:
        return Elsewhere(embedding=here.embedding)
    if not here.streamed:
        return here._replace(on_cpu=count)
    return here._replace(streamed=count).lending(here.lent) if count > STREAM_SLOTS else None
