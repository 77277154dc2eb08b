"""Whether two records are of one machine and one commit."""

from collections.abc import Mapping
from typing import Any

_VARIES = "load_average"  # from one run to the next


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """The first field in which two machines, as records have them, differ; None: they are one."""
    names = dict.fromkeys((*one, *other))
    return next((n for n in names if n != _VARIES and one.get(n) != other.get(n)), None)
