"""Candidates nearby whose linear maps compute no row for nothing: at the ends of tiles (ADR 0059).

Engines keep to a plan's numbers of requests as limits, so that what runs at the end of a tile does
not fall into the next one.
"""

from collections.abc import Iterator

from tandem.planner.candidate import Candidate


def at_tile_edges(here: Candidate, tile_rows: int, prompt_tokens: int) -> Iterator[Candidate]:
    """With fewer rows on the accelerator, or cohorts of other sizes, in steps of the same size.

    Args:
        tile_rows: that are computed at a time.
        prompt_tokens: of a sweep that reads any: it fills a tile, or the others do.
    """
    if not here.device_rows or here.halves:
        return
    found: dict[Candidate, None] = {}
    for beside in dict.fromkeys((0, prompt_tokens)):
        found |= dict.fromkeys(_with_fewer(here, tile_rows, beside))
        if here.has_cohorts:
            found |= dict.fromkeys(_with_cohorts(here, tile_rows, beside))
    found.pop(here, None)
    yield from found


def _with_fewer(here: Candidate, tile_rows: int, beside: int) -> Iterator[Candidate]:
    """On the accelerator, at the end of their last whole tile, or the one before.

    Args:
        beside: tokens of the same sweep.
    """
    others = beside if here.has_cohorts else here.host_rows + beside
    last = (here.device_rows + others) // tile_rows * tile_rows
    for edge in (last, last - tile_rows):
        if 0 < edge - others <= here.device_rows:
            yield here._replace(device_rows=edge - others)


def _with_cohorts(here: Candidate, tile_rows: int, beside: int) -> Iterator[Candidate]:
    """That end where a tile does, by themselves where they have passes of their own, else with what
    they share stages with.
    """
    shared = 0 if here.passes else here.device_rows + beside
    last = (shared + here.cohort_rows) // tile_rows * tile_rows
    for edge in (last, last + tile_rows):
        if edge > shared:
            yield here._replace(host_rows=here.num_cohorts * (edge - shared))
