"""Requests of a cell: synthetic prompts, forced lengths, some that have begun elsewhere."""

import itertools
import random
from collections.abc import Sequence

from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams
from tandem.spec.workload import RequestShape

SHAPES = 2_000
"""That a kept full engine takes in turns."""
VOCABULARY = 64
"""Prompts have token ids below it."""
_FIRST_TOKEN = 3


def request_of(number: int, shape: RequestShape) -> EngineRequest:
    """Greedy, to its length; its id is its number."""
    tokens = VOCABULARY - _FIRST_TOKEN
    prompt = tuple(_FIRST_TOKEN + (number + i) % tokens for i in range(shape.prompt_tokens))
    params = SamplingParams(max_tokens=shape.generated_tokens, temperature=0.0, ignore_eos=True)
    return EngineRequest(str(number), prompt, params)


class SteadyShapes:
    """Shapes in turns without end, of which the first `rows` are at progress that is spread evenly
    over their lengths: what they have emitted before is part of their prompts.

    Until all of them have come, some end, and those that follow them are at their beginnings and
    come first: else requests that are older than in the mean would gather where they go on fastest.

    Args:
        step_tokens: that a step computes at most.

    Attributes:
        left: of the first ones, how many have not come yet.
    """

    def __init__(self, shapes: Sequence[RequestShape], rows: int, step_tokens: int) -> None:
        self._turns = itertools.cycle(shapes)
        self._rows, self.left, self._step_tokens = rows, rows, step_tokens
        self._places = list(range(rows))
        random.Random(0).shuffle(self._places)
        self._followed = 0

    def next(self) -> RequestShape:
        """One at its beginning."""
        return next(self._turns)

    def followers(self, ended: int) -> list[RequestShape]:
        """Of those that have ended since the last call.

        Args:
            ended: requests that have ended so far.
        """
        new, self._followed = ended - self._followed, ended
        return [self.next() for _ in range(new)]

    def batch(self) -> list[RequestShape]:
        """The next of the first ones: one, or as many as a step reads, so that nobody waits in
        front of who takes a place that has come free.
        """
        batch: list[RequestShape] = []
        while self.left and sum(shape.prompt_tokens for shape in batch) < self._step_tokens:
            batch.append(self._begun())
        return batch

    def _begun(self) -> RequestShape:
        shape, place = self.next(), self._places[self._rows - self.left]
        self.left -= 1
        tokens = shape.generated_tokens
        done = min(int((place + 0.5) / self._rows * tokens), tokens - 1)
        return RequestShape(shape.prompt_tokens + done, tokens - done)
