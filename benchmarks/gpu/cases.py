"""A part's cases, one after the other: one that fails, or breaks its process, is not the end of the
others, and none finds another's memory taken.
"""

import traceback
from collections.abc import Callable, Mapping

from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.give_back import device_answers, give_back

from tandem.spec.errors import TandemError

Case = Callable[[Deadline], None]
_LINE_END = "\n"


class CaseError(Exception):
    """What is to be measured cannot be here; says why."""


class FailedError(Exception):
    """What must hold does not; says what came of it. The next call looks again."""


class UnfinishedError(Exception):
    """There is no time for what is left; the next call goes on with it."""


def run_cases(cases: Mapping[str, Case], limit: Deadline, found: Findings) -> None:
    """Those that have not been measured, each within its share of the time.

    What any library raises in a case is that case's alone, as long as the device answers: starting
    anew takes seconds, of which a lent GPU has few. It is told, its figures are dropped, and it is
    tried once more in the next call.

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
        except Exception as error:  # of torch, Triton, a peer: whatever a first run brings to light
            if not device_answers():
                raise
            traceback.print_exc()
            failed[name] = f"{type(error).__name__}: {str(error).partition(_LINE_END)[0]}"
            found.break_off()
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
