"""Frozen dataclasses of numbers, text, tuples and each other, from parsed JSON and back."""

from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

_T = TypeVar("_T")


def to_plain(value: Any) -> Any:
    """What `json.dumps` takes."""
    if is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [to_plain(entry) for entry in cast("tuple[Any, ...]", value)]
    return value


def from_plain(kind: type[_T], value: Any, where: str = "") -> _T:
    """Inverse of `to_plain`; every field must be there, be known, and be of its type.

    Raises:
        ValueError: names the first field that is not.
    """
    return _decode(kind, value, where)


def _decode(kind: Any, value: Any, where: str) -> Any:
    if is_dataclass(kind):
        return _dataclass(cast("type[Any]", kind), value, where)
    if get_origin(kind) is tuple:
        return _tuple(kind, value, where)
    if get_origin(kind) is UnionType:
        inner = next(each for each in get_args(kind) if each is not NoneType)
        return None if value is None else _decode(inner, value, where)
    if get_origin(kind) is Literal:
        return _one_of(get_args(kind), value, where)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"{where} must be {kind.__name__}, not {value!r:.40}")
    return value


def _dataclass(kind: type[Any], value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where or 'the whole'} must be an object, not {value!r:.40}")
    given = cast("dict[str, Any]", value)
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)]
    prefix = f"{where}." if where else ""
    for name in names:
        if name not in given:
            raise ValueError(f"{prefix}{name} is missing")
    for name in given:
        if name not in names:
            raise ValueError(f"{prefix}{name} is no known field")
    values = {name: _decode(hints[name], given[name], f"{prefix}{name}") for name in names}
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(f"{where or 'the whole'}: {error}") from None


def _one_of(allowed: tuple[Any, ...], value: Any, where: str) -> Any:
    if value not in allowed:
        raise ValueError(f"{where} must be one of {', '.join(allowed)}, not {value!r:.40}")
    return value


def _tuple(kind: Any, value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{where} must be a list, not {value!r:.40}")
    inner = get_args(kind)[0]
    entries = cast("list[Any]", value)
    return tuple(_decode(inner, entry, f"{where}[{i}]") for i, entry in enumerate(entries))
