"""A part's cases, one after the other: one that breaks its process is not the end of the others,
and none finds another's memory taken.
"""

from collections.abc import Callable, Mapping

from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.give_back import give_back

from tandem.spec.errors import TandemError

Case = Callable[[Deadline], None]


class CaseError(Exception):
    """What is to be measured cannot be here; says why."""


class FailedError(Exception):
    """What must hold does not; says what came of it. The next call looks again."""


class UnfinishedError(Exception):
    """There is no time for what is left; the next call goes on with it."""


def run_cases(cases: Mapping[str, Case], limit: Deadline, found: Findings) -> None:
    """Those that have not been measured, each within its share of the time.

    Raises:
        FailedError: some failed; all others have been measured, as far as time went.
        UnfinishedError: another would probably not end in time, by the longest so far.
    """
    left = found.left(cases)
    longest_s, failed = 0.0, dict[str, str]()
    for number, name in enumerate(left):
        if limit.left_s < longest_s:
            _require_none(failed, found)
            raise UnfinishedError(f"{', '.join(left[number:])}: left to the next call")
        begun_s = limit.clock()
        found.begin(name)
        try:
            cases[name](limit.share(len(left) - number))
        except FailedError as error:
            failed[name] = str(error)
            found.fail(name)
        except (TandemError, CaseError) as error:
            found.note(f"{name} was not run: {error}")
            found.end(name)
        else:
            found.end(name)
        give_back()
        longest_s = max(longest_s, limit.clock() - begun_s)
    _require_none(failed, found)


def _require_none(failed: Mapping[str, str], found: Findings) -> None:
    """Noted last, so that nothing of it stays when the next call has looked again.

    Raises:
        FailedError: there are some.
    """
    for name, what in failed.items():
        found.note(f"{name} failed: {what}")
    if failed:
        raise FailedError(f"{', '.join(failed)}: failed")
