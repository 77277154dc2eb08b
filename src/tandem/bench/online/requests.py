"""Requests of a cell: synthetic prompts, forced lengths, some that have begun elsewhere."""

import itertools
import random
from collections.abc import Iterator, Sequence

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


def steady_shapes(shapes: Sequence[RequestShape], rows: int) -> Iterator[RequestShape]:
    """Shapes in turns without end, of which the first `rows` are at progress that is spread evenly
    over their lengths: what they have emitted before is part of their prompts.
    """
    turns = itertools.cycle(shapes)
    places = list(range(rows))
    random.Random(0).shuffle(places)
    for place in places:
        shape = next(turns)
        done = min(int((place + 0.5) / rows * shape.generated_tokens), shape.generated_tokens - 1)
        yield RequestShape(shape.prompt_tokens + done, shape.generated_tokens - done)
    yield from turns
