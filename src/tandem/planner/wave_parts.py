"""A part of many places, in which each request stands for several that are nearly alike.

To live through a job takes as much processor time as there are requests times those that run. Of
as many as there are places, those with outputs about as long are taken together, so that a part
holds short and long ones as the whole does.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from tandem.planner.waves import Home, Wave
from tandem.spec.workload import RequestShape, are_alike

_WORK, _ALIKE_WORK = 50_000, 200_000
"""Requests times places that are lived through, and where all are alike: they end together, in
fewer steps.
"""
_LEAST = 1.4
"""Requests that one stands for, at least: fewer would save little and be less exact."""
_LONGEST = 4
"""Of the longest request, how many a part's pool holds: else there is no room for several."""


def part_of(
    wave: Wave, shapes: Sequence[RequestShape], share: float = 1.0
) -> tuple[Wave, Sequence[RequestShape]]:
    """A part of a wave and of its requests; all of both where there are not many.

    Args:
        share: of the usual work, for which the part is made.
    """
    rows = _rows(wave, shapes, share)
    if wave.places < _LEAST * rows:
        return wave, shapes
    each = wave.places / rows
    device, host = (_part_of_home(home, each) for home in wave.homes)
    part = replace(
        wave,
        homes=(device, host),
        places=rows,
        prompt_tokens=wave.prompt_tokens / each,
        each=each,
    )
    found: list[RequestShape] = []
    for start in range(0, len(shapes), wave.places):
        end = start + wave.places
        found += _grouped(shapes[start:end], each, last=end >= len(shapes))
    return part, found


def _rows(wave: Wave, shapes: Sequence[RequestShape], share: float) -> int:
    """Places of a part."""
    alike = are_alike(shapes)
    work = share * (_ALIKE_WORK if alike else _WORK)
    told_apart = shapes[:1] if alike else shapes
    longest = max(shape.prompt_tokens + shape.generated_tokens for shape in told_apart)
    pool = max(home.blocks for home in wave.homes if home.most)
    each = min(
        math.sqrt(len(shapes) * wave.places / work),
        pool * wave.block_size / (_LONGEST * longest),
    )
    return math.ceil(wave.places / max(1.0, each))


def _part_of_home(home: Home, each: float) -> Home:
    # those of both together are at least a part's places
    return replace(
        home,
        blocks=round(home.blocks / each),
        most=math.ceil(home.most / each),
        sweeps_per_prompt=home.sweeps_per_prompt * each,
    )


def _grouped(shapes: Sequence[RequestShape], each: float, last: bool) -> list[RequestShape]:
    """One for so many of these, by how much they generate, in their order.

    Of the `last` ones the longest stands for its group: a job takes until it has ended.
    """
    groups = math.ceil(len(shapes) / each - 1e-9)
    if are_alike(shapes):
        return [_mean(shapes[:1])] * groups
    numbers = sorted(range(len(shapes)), key=lambda number: shapes[number].generated_tokens)
    bounds = [round(group * len(shapes) / groups) for group in range(groups + 1)]
    found: list[tuple[int, RequestShape]] = []
    for start, end in pairwise(bounds):
        members = numbers[start:end]
        shape = _mean([shapes[number] for number in members])
        if last and end == len(shapes):
            shape = replace(shape, generated_tokens=shapes[numbers[-1]].generated_tokens)
        found.append((members[len(members) // 2], shape))
    return [shape for _, shape in sorted(found, key=lambda group: group[0])]


def _mean(shapes: Sequence[RequestShape]) -> RequestShape:
    count = len(shapes)
    return RequestShape(
        round(sum(shape.prompt_tokens for shape in shapes) / count),
        round(sum(shape.generated_tokens for shape in shapes) / count),
    )
