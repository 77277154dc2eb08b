"""Which of some jobs, done one after the other, are begun in time: as many as possible."""

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple


class Job(NamedTuple):
    """Takes so long, and should end by then, both from now on."""

    time_s: float
    due_s: float


def in_time(jobs: Sequence[Job], begin_s: float = 0.0) -> list[bool]:
    """For each of the jobs, ordered by when they are due, whether to do it before those that will
    be late: the fewest are (Moore 1968, with Hodgson's algorithm).

    Whenever a job would be late, the longest so far is given up, of equal ones the last; what was
    given up comes last.

    Args:
        begin_s: when the first of them can begin, from now on.
    """
    kept = [True] * len(jobs)
    longest: list[tuple[float, int]] = []
    end_s = begin_s
    for place, job in enumerate(jobs):
        heappush(longest, (-job.time_s, -place))
        end_s += job.time_s
        if end_s > job.due_s:
            time_s, given_up = heappop(longest)
            end_s += time_s
            kept[-given_up] = False
    return kept
