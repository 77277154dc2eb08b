"""How many prompts begin in a sweep: others begin where requests end, which end independently."""

import math
from typing import NamedTuple

_MOST_MEAN = 6.0
"""Prompts per sweep beyond which their number hardly varies."""
_FEW = 2
"""Sizes: of chunks, and of what is left of a prompt."""


class Chunks(NamedTuple):
    """Tokens of prompts in a steady state's sweeps.

    Attributes:
        share: of the sweeps, those with any, if only a few tokens that were left of a prompt.
        mean: tokens of those. usual: of most of them, or else their mean.
        weighted: (share of all sweeps, tokens), which together are `share` of them.
    """

    share: float
    mean: int
    usual: int
    weighted: tuple[tuple[float, int], ...]

    @property
    def timed(self) -> tuple[tuple[float, int], ...]:
        """The same in few sizes, as which the sweeps are timed: where there are many, by the usual
        one.
        """
        return self.weighted if len(self.weighted) <= _FEW else ((self.share, self.usual),)


def chunk_tokens(needed: float, prompt_tokens: float, room: int) -> int:
    """Of one sweep: a whole prompt, also of a broken mean, or, where that is too little, parts of
    several.
    """
    return max(1, min(max(math.ceil(prompt_tokens), round(needed)), room))


def is_one_chunk(needed: float, prompt_tokens: float, room: int) -> bool:
    """Whether all sweeps with prompts are taken to have as many tokens of them: more `needed` or
    less `room` never makes it false.
    """
    few = room < 2 * prompt_tokens or needed > room / 2
    return few or needed / prompt_tokens > _MOST_MEAN


def chunks_per_sweep(needed: float, prompt_tokens: float, room: int) -> Chunks:
    """As many prompts as a Poisson process brings, where a sweep has room for several.

    Where sweeps take longer with more prompts, or the link waits for none, what one sweep saves
    with fewer is not what another loses with more, so that the mean number is not enough.

    Args:
        needed: tokens of prompts per sweep, in the mean.
        room: most tokens of prompts in a sweep.
    """
    mean = needed / prompt_tokens
    if is_one_chunk(needed, prompt_tokens, room):
        tokens = chunk_tokens(needed, prompt_tokens, room)
        share = min(1.0, needed / tokens)
        rests = _rests(needed, prompt_tokens, tokens, share)
        if not rests:
            return Chunks(share, tokens, tokens, ((share, tokens),))
        mean = max(1, round((share * tokens + rests) / (share + rests)))
        return Chunks(share + rests, mean, tokens, ((share, tokens), (rests, 1)))
    most = math.ceil(mean + 2 * math.sqrt(mean)) + 1
    weights = _poisson(mean, most)
    weights.append(1.0 - sum(weights))
    share = 1.0 - weights[0]
    # thousands are asked for: lists are made faster than what yields
    weighted = tuple(
        [
            (weights[count], max(1, min(round(count * prompt_tokens), room)))
            for count in range(1, most + 1)
        ]
    )
    tokens = sum([weight * size for weight, size in weighted]) / share
    mean_tokens = max(1, round(tokens))
    return Chunks(share, mean_tokens, mean_tokens, weighted)


def _rests(needed: float, prompt_tokens: float, chunk: int, share: float) -> float:
    """Share of the sweeps that read no more than what was left of a prompt, which is little.

    A rest fills up a sweep with the prompt that follows, if one waits, as it does about as often as
    sweeps read any. What is left of the last of several that followed each other has its own.
    """
    chunks = prompt_tokens / chunk
    if chunks <= 1:
        return 0.0
    followed_by_none = needed / prompt_tokens * (1 - share)
    return min(followed_by_none * (math.ceil(chunks) - chunks), 1 - share)


def _poisson(mean: float, most: int) -> list[float]:
    """Of fewer than `most`, by their number."""
    none = math.exp(-mean)
    return [none * mean**count / math.factorial(count) for count in range(most)]
