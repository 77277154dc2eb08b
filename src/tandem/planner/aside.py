"""Work that the search does not wait for at once, and that others may do meanwhile."""

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Aside(Protocol):
    """Whoever may do it."""

    def begin(
        self, compute: Callable[[], T], meanwhile: Callable[[], object] | None = None
    ) -> Callable[[], T]:
        """To be computed from what is known now; returns what gives the result, once.

        Args:
            meanwhile: to be done here where the result would else be waited for; it has no effect
                on results.
        """
        ...


class InTurn:
    """Nobody else: it is computed when it is asked for."""

    def begin(
        self, compute: Callable[[], T], meanwhile: Callable[[], object] | None = None
    ) -> Callable[[], T]:
        """As `Aside.begin`."""
        return compute
