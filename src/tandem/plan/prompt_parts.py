"""Whole prompts, in parts of a program that is over all of them.

Weights are read for each part, so that few parts are wanted, and full ones.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class PromptSize(NamedTuple):
    """What a prompt takes: tokens of a part, and blocks of the slot that it passes through; none if
    it stays.
    """

    tokens: int
    blocks: int


class PartLimits(NamedTuple):
    """Of one part. A single prompt may exceed them."""

    tokens: int
    blocks: int
    prompts: int


def prompt_parts(prompts: Sequence[PromptSize], most: PartLimits) -> Iterator[list[int]]:
    """Places in `prompts`, part by part: one after the other as long as they fit, then the longest
    of the others that do.
    """
    left = sorted((size.tokens, -place) for place, size in enumerate(prompts))
    taken = [False] * len(prompts)
    for first in range(len(prompts)):
        if taken[first]:
            continue
        part = list[int]()
        room, follows = most, first
        found: int | None = first
        while found is not None:
            taken[found] = True
            part.append(found)
            del left[bisect_left(left, (prompts[found].tokens, -found))]
            room = PartLimits(
                room.tokens - prompts[found].tokens,
                room.blocks - prompts[found].blocks,
                room.prompts - 1,
            )
            while follows < len(prompts) and taken[follows]:
                follows += 1
            found = _next(prompts, left, room, follows) if room.prompts > 0 else None
        yield part


def _next(
    prompts: Sequence[PromptSize], left: Sequence[tuple[int, int]], room: PartLimits, follows: int
) -> int | None:
    """The one in turn, if it fits; else the longest that does."""
    if follows < len(prompts) and _fits(prompts[follows], room):
        return follows
    shorter = bisect_left(left, room.tokens + 1, key=_tokens)
    places = (-left[at][1] for at in range(shorter - 1, -1, -1))
    return next((place for place in places if _fits(prompts[place], room)), None)


def _tokens(entry: tuple[int, int]) -> int:
    return entry[0]


def _fits(size: PromptSize, room: PartLimits) -> bool:
    return size.tokens <= room.tokens and size.blocks <= room.blocks
