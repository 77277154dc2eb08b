"""What is computed once per object, when it is first asked for."""

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

_Found = TypeVar("_Found")


class Kept(Generic[_Found]):
    """`functools.cached_property` without the lock that it takes before Python 3.12: a scheduler
    belongs to one thread, and asks for several of them in each step.
    """

    def __init__(self, compute: Callable[[Any], _Found]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> _Found: ...
    def __get__(self, instance: object | None, owner: type) -> Self | _Found:
        if instance is None:
            return self
        # from now on the attribute is found in the object before this is asked
        found = instance.__dict__[self._name] = self._compute(instance)
        return found
