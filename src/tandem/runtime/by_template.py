"""What follows from a program's template, found once."""

from collections.abc import Callable
from typing import Generic, TypeVar

from tandem.plan.program import ProgramTemplate

_KNOWN_TEMPLATES = 4096
_Fact = TypeVar("_Fact")


class ByTemplate(Generic[_Fact]):
    """Remembers by identity, since to compare templates takes longer. For one thread at a time.

    Args:
        find: what is to be remembered.
    """

    def __init__(self, find: Callable[[ProgramTemplate], _Fact]) -> None:
        self._find = find
        self._known: dict[int, tuple[ProgramTemplate, _Fact]] = {}

    def __call__(self, template: ProgramTemplate) -> _Fact:
        """Of a template."""
        known = self._known.get(id(template))
        if known is None:  # kept with its template, so that no other can get the same id
            if len(self._known) == _KNOWN_TEMPLATES:
                self._known.clear()
            known = self._known[id(template)] = (template, self._find(template))
        return known[1]
