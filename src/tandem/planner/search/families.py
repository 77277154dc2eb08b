"""Plans by what one would call them, which is less than their kinds: to show some unlike ones."""

from collections.abc import Iterable

from tandem.planner.candidate import Candidate, Strategy
from tandem.planner.elsewhere import CpuHome
from tandem.planner.option import Option

Family = tuple[Strategy, bool, bool, CpuHome | None, bool, bool]


def family(candidate: Candidate) -> Family:
    """By strategy, whether layers are streamed, or their MLPs alone, what the CPU computes, whether
    some are read from disk, and whether some experts are elsewhere: whatever the numbers.
    """
    how = candidate.how if candidate.on_cpu else None
    streams, reads = candidate.streamed > 0, candidate.on_disk > 0
    return candidate.strategy, streams, candidate.mlps, how, reads, candidate.experts > 0


def unlike_first(chosen: Candidate, options: Iterable[Option]) -> list[Option]:
    """The first of each family but the chosen one's, then all others; otherwise in their order."""
    families, first, others = {family(chosen)}, list[Option](), list[Option]()
    for option in options:
        this = family(option.candidate)
        (others if this in families else first).append(option)
        families.add(this)
    return first + others
