"""A plan's answer, printed as it becomes known."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from tandem.cli.folded import print_folded
from tandem.planner.answer import Answer
from tandem.spec.workload import Workload

_Told = TypeVar("_Told")


def though_unread(tell: Callable[[_Told], None]) -> Callable[[_Told], None]:
    """For a plan that goes into a file, too: it is made to its end and written where nobody reads
    what is printed, or the output has no room. The next line that is printed fails likewise.
    """

    def told(found: _Told) -> None:
        with suppress(OSError):
            tell(found)

    return told


class PlanPrinting:
    """Prints the plan as soon as it is found, so that nobody waits for larger machines and
    rejected plans to read it; these follow.

    Args:
        basis: which numbers are measured and which assumed.
    """

    def __init__(self, model: str, workload: Workload, basis: Sequence[str]) -> None:
        self._model, self._workload, self._basis = model, workload, basis
        self._has_told = False

    def plan(self, answer: Answer) -> None:
        """It is found; or a better one, which takes its place."""
        from tandem.cli.plan_text import better_plan_text, plan_text

        if self._has_told:
            print_folded(better_plan_text(answer, self._basis))
        else:
            print_folded(plan_text(self._model, self._workload, answer, self._basis))
        self._has_told = True

    def beside(self, answer: Answer, flags: Sequence[str], output: Path | None) -> None:
        """All the rest is known.

        Args:
            flags: of the engine, that the plan was made for beside what it decides.
            output: where the plan was written.
        """
        from tandem.cli.plan_beside import beside_text

        print_folded(beside_text(self._model, answer, flags, output))
