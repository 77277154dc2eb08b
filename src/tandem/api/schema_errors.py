"""What is wrong with a request's fields, in words of the API."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from pydantic import ValidationError

from tandem.api.errors import ApiError
from tandem.spec.forms import shown

Place = tuple[int | str, ...]

_KINDS = {
    "string_type": "a text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
}


def refuse(error: ValidationError) -> NoReturn:
    """Tell of the first field that is wrong.

    Raises:
        ApiError: always.
    """
    faults = error.errors(include_url=False)
    place, wanted = _first_fault(faults)
    fault = faults[0] if len(wanted) > 1 else wanted[0]
    if fault["type"] == "missing":
        message = f"{_written(place)} is missing; give one"
    else:
        kinds = " or ".join(dict.fromkeys(map(_wanted, wanted)))
        message = f"{_written(place)} must be {kinds}, not {shown(fault['input'])}"
    raise ApiError(400, message, param=str(place[0]) if place else None) from None


def _first_fault(faults: Sequence[Mapping[str, Any]]) -> tuple[Place, list[Mapping[str, Any]]]:
    """The field, and what is wrong with it: where it may be of several kinds, with each of them, or
    with the one that is right up to something within it.
    """
    start = _field(faults[0]["loc"])
    alike = [fault for fault in faults if fault["loc"][: len(start)] == start]
    deepest = max(alike, key=lambda fault: len(_without_kinds(fault["loc"])))
    place = _without_kinds(deepest["loc"])
    return place, [fault for fault in alike if _without_kinds(fault["loc"]) == place]


def _is_kind(part: int | str) -> bool:
    """True of what stands for one of several kinds that a field may be of, not for a field."""
    return part == "str" or (isinstance(part, str) and part.startswith("list["))


def _field(place: Place) -> Place:
    kinds = [index for index, part in enumerate(place) if _is_kind(part)]
    return place[: kinds[0]] if kinds else place


def _without_kinds(place: Place) -> Place:
    return tuple(part for part in place if not _is_kind(part))


def _written(place: Place) -> str:
    """As JavaScript writes it: messages[0].content."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in place]
    return "".join(parts).removeprefix(".") or "the body"


def _wanted(fault: Mapping[str, Any]) -> str:
    bounds = fault.get("ctx", {})
    match fault["type"]:
        case "greater_than_equal":
            return f"at least {bounds['ge']}"
        case "less_than_equal":
            return f"at most {bounds['le']}"
        case "too_short":
            return "a list that is not empty"
        case "literal_error":
            return str(bounds["expected"])
        case kind:
            return _KINDS[kind] if kind in _KINDS else str(fault["msg"])
