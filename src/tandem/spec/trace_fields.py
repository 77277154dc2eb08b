"""Fields of a trace's lines or entries: counts of tokens, and moments."""

import calendar
import re
from pathlib import Path
from typing import cast

from tandem.spec.errors import ConfigError, shown
from tandem.spec.units import is_count
from tandem.spec.workload import MAX_TOKENS

_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(\.\d+)?(?:Z|\+00:00)?", re.ASCII
)
# Of seconds since 1970 there are 10 digits; 13 are milliseconds.
_SECONDS = re.compile(r"\d{1,12}(\.\d+)?", re.ASCII)
_MOST_SECONDS = 10**12


def token_count(path: Path, where: str, name: str, value: object, least: int = 1) -> int:
    """A number of tokens, as a number or in digits.

    Args:
        where: the line or entry that it stands in.

    Raises:
        ConfigError: it is none, below `least`, or beyond all requests.
    """
    count = int(value) if isinstance(value, str) and is_count(value) else value
    is_whole = isinstance(count, int) and not isinstance(count, bool)
    if not is_whole or not least <= cast(int, count) <= MAX_TOKENS:
        wanted = f"must be a whole number from {least} to {MAX_TOKENS}"
        raise trace_error(path, f"{where}: {name} {wanted}, not {shown(count)}")
    return cast(int, count)


def moment_s(path: Path, where: str, name: str, value: object) -> float:
    """Seconds since any moment: a number, digits, or a date with time in UTC.

    Raises:
        ConfigError: it is neither, or no such date exists.
    """
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 <= value < _MOST_SECONDS
    ):
        return float(value)
    text = value if isinstance(value, str) else ""
    if _SECONDS.fullmatch(text):
        return float(text)
    if match := _TIMESTAMP.fullmatch(text):
        fields = tuple(int(match[group]) for group in range(1, 7))
        if not _is_moment(*fields):
            raise trace_error(path, f"{where}: {name} {shown(text)} is no date with time; mend it")
        return calendar.timegm((*fields, 0, 0, 0)) + float(match[7] or 0)
    raise trace_error(
        path, f"{where}: {name} {shown(value)} is neither a date with time nor seconds"
    )


def _is_moment(year: int, month: int, day: int, hour: int, minute: int, second: int) -> bool:
    if year < 1 or not 1 <= month <= 12:
        return False
    days = calendar.monthrange(year, month)[1]
    return 1 <= day <= days and hour < 24 and minute < 60 and second < 60


def trace_error(path: Path, what: str) -> ConfigError:
    """What is wrong with the trace at `path`, and what to do."""
    return ConfigError(f"trace {path}: {what}", param="trace")
