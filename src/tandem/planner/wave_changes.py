"""Changes of a plan that may end a job sooner whose requests are all there at once."""

import math
from collections.abc import Iterator

from tandem.planner.candidate import Candidate
from tandem.planner.footprint import Footprint
from tandem.planner.places import num_places
from tandem.planner.question import Question
from tandem.planner.search.candidates import Candidates
from tandem.planner.search.step_sizes import around

_FEWER, _SHARED_OUT = 2, 1 / 7
"""On the accelerator, how many requests fewer are tried for even waves; and of those there, the
share that changes places.
"""


class WaveChanges:
    """Other places, and steps of other sizes, with room for what they hold."""

    def __init__(self, question: Question, footprint: Footprint) -> None:
        self._q, self._footprint = question, footprint
        self._candidates = Candidates(question, footprint)
        self._steps: dict[int, int] = {question.step_of(step): step for step in question.steps}

    def of(self, candidate: Candidate) -> Iterator[Candidate]:
        """Places for as many requests in the last wave as in those before it; for one wave less, or
        more; steps of twice the size, or half; and some more requests in either tier.
        """
        yield from self.with_even_waves(candidate)
        yield from self._with_waves(candidate, self._waves(candidate) + 1)
        here = self._q.step_of(candidate.step_tokens)
        for size in (2 * here, here // 2):
            if size in self._steps:
                resized = candidate._replace(step_tokens=self._steps[size])
                yield from self._with_room(resized, smaller=size < here)
        yield from self._with_others_here(candidate)

    def with_even_waves(self, candidate: Candidate) -> Iterator[Candidate]:
        """With places for as many requests in the last wave as before; and for one wave less."""
        waves = self._waves(candidate)
        yield from self._with_waves(candidate, waves)
        if waves > 1:
            yield from self._with_waves(candidate, waves - 1)

    def with_other_waves(self, candidate: Candidate) -> Iterator[Candidate]:
        """With places for even waves, one less or more."""
        waves = self._waves(candidate)
        for number in (waves - 1, waves + 1):
            if number:
                yield from self._with_waves(candidate, number)

    def _waves(self, candidate: Candidate) -> int:
        return math.ceil(self._q.lengths.requests / num_places(self._q, candidate))

    def _with_waves(self, candidate: Candidate, number: int) -> Iterator[Candidate]:
        yield from self._with_rows(candidate, math.ceil(self._q.lengths.requests / number))

    def _with_rows(self, candidate: Candidate, rows: int) -> Iterator[Candidate]:
        """With so many, in steps as they are, or the next larger ones in which they fit: more of
        them need more room for their prompts.
        """
        here = self._q.step_of(candidate.step_tokens)
        for size in sorted(size for size in self._steps if size >= here):
            resized = candidate._replace(step_tokens=self._steps[size])
            for shared in self._shared_among(resized, rows):
                if self._footprint.fits(shared):
                    yield shared
                    return

    def _shared_among(self, candidate: Candidate, rows: int) -> Iterator[Candidate]:
        """More on the host may leave room for fewer on the accelerator."""
        if not candidate.host_rows:
            yield candidate._replace(device_rows=rows)
            return
        most = min(candidate.device_rows, rows - 1)
        for device in range(most, max(most - _FEWER, 0) - 1, -1):
            yield self._shared_out(candidate, device, rows)

    def _shared_out(self, candidate: Candidate, device: int, rows: int) -> Candidate:
        """With so many on the accelerator of so many in all."""
        hosted = rows - device
        here = self._candidates.prompts_here_of(candidate, hosted)
        moved = candidate._replace(device_rows=device, host_rows=hosted, prompts_here=here)
        return moved if device else moved.hosted()

    def _with_others_here(self, candidate: Candidate) -> Iterator[Candidate]:
        """As many in all, and some more on the host, or on the accelerator."""
        if candidate.device_rows and candidate.host_rows and not candidate.device_share:
            some = max(1, round(candidate.device_rows * _SHARED_OUT))
            for device in (candidate.device_rows - some, candidate.device_rows + some):
                if 0 < device < candidate.rows:
                    yield self._shared_out(candidate, device, candidate.rows)

    def _with_room(self, candidate: Candidate, *, smaller: bool) -> Iterator[Candidate]:
        """It, or the same with as few more layers elsewhere as make it fit, if a few do; in smaller
        steps, with as few as fit.
        """
        every = around(candidate.elsewhere, self._q.movable_layers, smaller)
        moved = (candidate.with_elsewhere(each) for each in every)
        alike = (each for each in moved if each.embedding == candidate.embedding)
        found = list(filter(self._footprint.fits, alike))
        if found:
            yield found[-1] if smaller else found[0]
