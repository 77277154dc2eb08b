"""Where in a sweep a cohort takes part: the continuum from APEX to NEO.

A cohort that only joins the stages of the layer at which it stands advances one layer per sweep
(APEX). With passes of its own it advances at other layers too; with one beside every layer it is
NEO's second sub-batch, in counter-phase to the first.
"""

from functools import lru_cache
from typing import NamedTuple


class Visit(NamedTuple):
    """A cohort's attention of `layer` is joined when the others are at layer `at`; it shares their
    stages if that is the same one.
    """

    layer: int
    at: int


def plan_visits(cursor: int, num_layers: int, passes: int, *, entered: bool) -> tuple[Visit, ...]:
    """The visits of a cohort in one sweep, one layer after the other.

    Passes are spread evenly over the sweep, so that the CPU has time for each attention in
    between. The others' stages are shared where the cohort meets them, but not twice in a row: both
    would then be at the same layer throughout, and wait for each other.

    Args:
        cursor: layer of which attention is under way when the sweep begins.
        passes: most visits apart from the others.
        entered: the cohort enters with this sweep, so that layer 0 has just been left.
    """
    own = {(2 * i + 1) * num_layers // (2 * passes) for i in range(passes)}
    visits: list[Visit] = []
    last = 0 if entered else -2
    for at in range(num_layers):
        layer = cursor + len(visits)
        meets = layer == at and last < at - 1 and not (entered and not visits)
        if layer < num_layers and (meets or (layer != at and at in own)):
            visits.append(Visit(layer, at))
            last = at
    return tuple(visits)


@lru_cache(maxsize=64)
def token_sweeps(num_layers: int, passes: int) -> tuple[tuple[Visit, ...], ...]:
    """The visits of a cohort's token, sweep by sweep, from the one with which it enters."""
    sweeps = [plan_visits(0, num_layers, passes, entered=True)]
    left_behind = len(sweeps[0])
    while left_behind < num_layers:
        sweeps.append(plan_visits(left_behind, num_layers, passes, entered=False))
        left_behind += len(sweeps[-1])
    return tuple(sweeps)


@lru_cache(maxsize=64)
def own_visits(num_layers: int, passes: int) -> int:
    """Of a cohort's token, those that are passes apart from the others."""
    sweeps = token_sweeps(num_layers, passes)
    return sum(visit.layer != visit.at for visits in sweeps for visit in visits)


class Rhythm(NamedTuple):
    """How a cohort's tokens follow each other.

    Attributes:
        sweeps: from the one with which it enters to the one with which it enters again.
        own: of its visits, the passes apart from the others.
    """

    sweeps: int
    own: int


@lru_cache(maxsize=64)
def token_rhythm(num_layers: int, passes: int, every: int, in_flight: int) -> Rhythm:
    """Of a cohort whose attention is always there in time.

    Args:
        every: it takes part in one of so many sweeps.
        in_flight: sweeps; the next token begins when the last one is known, so many after it.
    """
    sweeps = [visits for visits in token_sweeps(num_layers, passes) if visits]
    entering = not plan_visits(0, num_layers, passes, entered=True)
    own = own_visits(num_layers, passes)
    return Rhythm(entering + (len(sweeps) - 1) * every + in_flight, own)
