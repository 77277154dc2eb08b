"""Brings values, as Python callers write them, into the one form that fields have.

A *form* takes any value and returns it as the field holds it, or raises a `FormError` that says
what it wants. NumPy's numbers count as numbers, lists as tuples; nothing is rounded or parsed.
"""

import operator
import os
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import Any, TypeVar, cast

from tandem.spec.errors import TandemError

T = TypeVar("T")
Form = Callable[[object], object]

_SHOWN_CHARACTERS = 60


class FormError(ValueError):
    """A value has another form than the one that its text describes."""


def apply_forms(owner: object, forms: Mapping[str, Form], error: type[TandemError]) -> None:
    """Bring the named fields of `owner`, a frozen dataclass under construction, into their forms.

    Raises:
        error: one cannot be; names the field.
    """
    for name, form in forms.items():
        value = getattr(owner, name)
        formed = in_form(value, form, name, error)
        if formed is not value:
            object.__setattr__(owner, name, formed)


def in_form(value: object, form: Callable[[object], T], param: str, error: type[TandemError]) -> T:
    """`value` in its form.

    Raises:
        error: it cannot be; names `param`.
    """
    try:
        return form(value)
    except FormError as wanted:
        raise error(f"{param} must be {wanted}, not {shown(value)}", param=param) from None


def whole_number(value: object) -> int:
    """An integer, NumPy's included; booleans and floats are none."""
    if isinstance(value, bool):
        raise FormError("a whole number")
    try:
        return operator.index(cast("Any", value))
    except TypeError:
        raise FormError("a whole number") from None


def number(value: object) -> float:
    """A float or an integer, NumPy's included; booleans are none."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise FormError("a number")
    try:
        return float(value)
    except OverflowError:
        raise FormError("a number in the range of floats") from None


def flag(value: object) -> bool:
    """True or False and nothing else."""
    if not isinstance(value, bool):
        raise FormError("True or False")
    return value


def text(value: object) -> str:
    """A string."""
    if not isinstance(value, str):
        raise FormError("a text")
    return value


def path_text(value: object) -> str:
    """A string or a path."""
    if isinstance(value, os.PathLike):
        return text(os.fspath(cast("os.PathLike[str]", value)))
    return text(value)


def size_text(value: object) -> str:
    """A size as people write it; a whole number is bytes."""
    if isinstance(value, str):
        return value
    try:
        return str(whole_number(value))
    except FormError:
        raise FormError("a size such as '12GiB', or a number of bytes") from None


def texts(value: object) -> tuple[str, ...]:
    """A tuple of strings; a single string is one of them."""
    if isinstance(value, str):
        return (value,)
    items = _items(value, "a text or a list of texts")
    if not all(isinstance(item, str) for item in items):
        raise FormError("a text or a list of texts")
    return cast("tuple[str, ...]", items)


def whole_numbers(value: object) -> tuple[int, ...]:
    """A tuple of integers."""
    wanted = "a list of whole numbers"
    items = _items(value, wanted)
    if set(map(type, items)) <= {int}:  # the quick way, for long prompts
        return cast("tuple[int, ...]", items)
    try:
        return tuple(map(whole_number, items))
    except FormError:
        raise FormError(wanted) from None


def numbers_by_id(value: object) -> tuple[tuple[int, float], ...]:
    """Pairs of an integer and a float; a mapping is its items."""
    wanted = "a mapping of token ids to numbers"
    if isinstance(value, Mapping):
        value = tuple(cast("Mapping[object, object]", value).items())
    items = [_items(pair, wanted) for pair in _items(value, wanted)]
    if not all(len(item) == 2 for item in items):
        raise FormError(wanted)
    try:
        return tuple((whole_number(key), number(bias)) for key, bias in items)
    except FormError:
        raise FormError(wanted) from None


def optional(form: Callable[[object], T]) -> Callable[[object], T | None]:
    """`form`, or None."""

    def or_none(value: object) -> T | None:
        if value is None:
            return None
        try:
            return form(value)
        except FormError as wanted:
            raise FormError(f"{wanted} or None") from None

    return or_none


def or_empty(form: Callable[[object], tuple[T, ...]]) -> Callable[[object], tuple[T, ...]]:
    """`form`; None means nothing."""
    return lambda value: () if value is None else form(value)


def _items(value: object, wanted: str) -> tuple[object, ...]:
    if isinstance(value, tuple):
        return cast("tuple[object, ...]", value)
    if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Iterable):
        raise FormError(wanted)
    try:
        return tuple(cast("Iterable[object]", value))
    except TypeError:  # an array without dimensions calls itself iterable
        raise FormError(wanted) from None


def shown(value: object) -> str:
    """A value in a message: one line, cut off if it is long."""
    line = " ".join(repr(value).split())
    return line if len(line) <= _SHOWN_CHARACTERS else line[: _SHOWN_CHARACTERS - 3] + "..."
