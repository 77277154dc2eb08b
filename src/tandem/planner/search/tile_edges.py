"""Candidates nearby whose linear maps compute no row for nothing: at the ends of tiles (ADR 0059).

Engines keep to a plan's numbers of requests as limits, so that what runs at the end of a tile does
not fall into the next one.
"""

from collections.abc import Iterator
from math import floor, sqrt

from tandem.planner.candidate import Candidate

_SELDOM = 2.0
"""Deviations below their mean number, than which places that are empty are hardly ever fewer."""


def at_tile_edges(
    here: Candidate, tile_rows: int, prompt_tokens: int, ended: float = 0.0
) -> Iterator[Candidate]:
    """With fewer rows on the accelerator, or cohorts of other sizes, in steps of the same size.

    Args:
        tile_rows: that are computed at a time.
        prompt_tokens: of a sweep that reads any: it fills a tile, or the others do.
        ended: requests per sweep that end, and leave a place empty each.
    """
    if not here.device_rows or here.halves:
        return
    found: dict[Candidate, None] = {}
    for beside in dict.fromkeys((0, prompt_tokens)):
        found |= dict.fromkeys(_with_fewer(here, tile_rows, beside))
        if here.has_cohorts:
            found |= dict.fromkeys(_with_cohorts(here, tile_rows, beside))
    if ended > 1:
        found |= dict.fromkeys(_with_places(here, tile_rows, ended))
    found.pop(here, None)
    yield from found


def _with_places(here: Candidate, tile_rows: int, ended: float) -> Iterator[Candidate]:
    """With places at the end of a tile, or beyond it by as many as are always empty: there is one
    more of them than requests that decode. If the host attends to some beside, with fewer of these,
    or of both.
    """
    if here.has_cohorts:
        return
    spare = max(0, floor(ended - _SELDOM * sqrt(ended)))
    last = (here.rows + 1) // tile_rows * tile_rows
    for places in dict.fromkeys((last, last + spare)):
        fewer = here.rows + 1 - places
        if 0 < fewer < here.host_rows:
            yield here._replace(host_rows=here.host_rows - fewer)
        if 0 < fewer < here.device_rows:
            yield here._replace(device_rows=here.device_rows - fewer)


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
