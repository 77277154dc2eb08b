"""Plans as JSON objects with their format's number, and back."""

import json
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, TypeVar, cast

from tandem.spec import forms
from tandem.spec.errors import ConfigError

PlanT = TypeVar("PlanT")


def parse_plan(text: str, read: Callable[[Any], PlanT]) -> PlanT:
    """What `read` makes of a text's object.

    Raises:
        ConfigError: not JSON, or what `read` refuses.
    """
    try:
        return read(json.loads(text))
    except (ValueError, RecursionError, ConfigError) as error:
        raise ConfigError(f"{error}; make it anew") from None


def fields_of(given: Any, format: int) -> dict[str, Any]:
    """An object's fields without its format.

    Raises:
        ConfigError: another format, or no object.
    """
    values = {**cast("dict[str, Any]", given)} if isinstance(given, dict) else {}
    if not is_format(values.pop("format", None), format):
        raise ConfigError(f"this plan is not of format {format}")
    return values


def is_format(given: object, format: int) -> bool:
    """Whether it is that number: JSON's `true` is none."""
    return type(given) is int and given == format


def made_of(kind: Callable[..., PlanT], given: object, name: str, **read: Any) -> PlanT:
    """A dataclass of an object's fields.

    Args:
        name: of the object in the file.
        read: fields that are read already.

    Raises:
        ConfigError: no object, a field too many or too few, or what `kind` refuses.
    """
    if not isinstance(given, dict):
        raise ConfigError(f"{name} must be an object, not {forms.shown(given)}")
    values = {**cast("dict[str, Any]", given), **read}
    known = fields(cast("Any", kind))
    extra = sorted(values.keys() - {field.name for field in known})
    if extra:
        raise ConfigError(f"{name} has no field {forms.shown(extra[0])}")
    for field in known:
        optional = field.default is not MISSING or field.default_factory is not MISSING
        if field.name not in values and not optional:
            raise ConfigError(f"{name}.{field.name} is missing")
    return kind(**values)
