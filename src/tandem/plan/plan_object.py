"""Plans as JSON objects with their format's number, and back."""

import json
from collections.abc import Callable
from typing import Any, TypeVar, cast

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
    if not isinstance(given, dict) or cast("dict[str, Any]", given).get("format") != format:
        raise ConfigError(f"this plan is not of format {format}")
    values = {**cast("dict[str, Any]", given)}
    del values["format"]
    return values
