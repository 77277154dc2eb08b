"""Checked look-ups in a `quantization_config`."""

from collections.abc import Mapping
from typing import Any

from tandem.spec.errors import ModelError

_AGAIN = "; download config.json again"


def whole_number(config: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    """The first of these that is there.

    Raises:
        ModelError: none is, without a default, or it is no integer.
    """
    value = next((config[name] for name in names if config.get(name) is not None), default)
    if isinstance(value, bool) or not isinstance(value, int):
        what = "missing" if value is None else f"{value!r}, not an integer"
        raise ModelError(f"'{names[0]}' of the quantization is {what}{_AGAIN}")
    return value


def group_size(config: Mapping[str, Any], *names: str) -> int:
    """Elements that share a scale; -1: all of a row.

    Raises:
        ModelError: missing, or no such number.
    """
    size = whole_number(config, *names)
    if size < 1 and size != -1:
        raise ModelError(
            f"'{names[0]}' of the quantization is {size}, neither above 0 nor -1 for whole rows"
            f"{_AGAIN}"
        )
    return size


def flag(config: Mapping[str, Any], name: str, default: bool) -> bool:
    """A boolean, or the default.

    Raises:
        ModelError: something else.
    """
    value = config.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ModelError(f"'{name}' of the quantization is {value!r}, not true or false{_AGAIN}")
    return value


def text(config: Mapping[str, Any], name: str, default: str = "") -> str:
    """Lower-case text, or the default."""
    value = config.get(name)
    return default if value is None else str(value).lower()


def section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A nested object; empty if absent.

    Raises:
        ModelError: something else.
    """
    value = config.get(name) or {}
    if not isinstance(value, Mapping):
        raise ModelError(f"'{name}' of the quantization is {value!r}, not an object{_AGAIN}")
    return value


def names(config: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """A list of names; empty if absent.

    Raises:
        ModelError: something else.
    """
    value = config.get(name) or []
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise ModelError(f"'{name}' of the quantization is {value!r}, not a list of names{_AGAIN}")
    return tuple(value)
