"""Work that the search does not wait for at once, and that others may do meanwhile."""

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Aside(Protocol):
    """Whoever may do it."""

    def begin(self, compute: Callable[[], T]) -> Callable[[], T]:
        """To be computed from what is known now; returns what gives the result, once."""
        ...


class InTurn:
    """Nobody else: it is computed when it is asked for."""

    def begin(self, compute: Callable[[], T]) -> Callable[[], T]:
        """As `Aside.begin`."""
        return compute
