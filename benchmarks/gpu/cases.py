"""A part's cases, one after the other: one that breaks its process is not the end of the others."""

from collections.abc import Callable, Mapping

from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.findings import Findings

from tandem.spec.errors import TandemError

Case = Callable[[Deadline], None]


class CaseError(Exception):
    """What is to be measured cannot be here; says why."""


class UnfinishedError(Exception):
    """There is no time for what is left; the next call goes on with it."""


def run_cases(cases: Mapping[str, Case], limit: Deadline, found: Findings) -> None:
    """Those that have not been measured, each within its share of the time.

    Raises:
        UnfinishedError: another would probably not end in time, by the longest so far.
    """
    left = found.left(cases)
    longest_s = 0.0
    for number, name in enumerate(left):
        if limit.left_s < longest_s:
            raise UnfinishedError(f"{', '.join(left[number:])}: left to the next call")
        begun_s = limit.clock()
        found.begin(name)
        try:
            cases[name](limit.share(len(left) - number))
        except (TandemError, CaseError) as error:
            found.note(f"{name} was not run: {error}")
        found.end(name)
        longest_s = max(longest_s, limit.clock() - begun_s)
