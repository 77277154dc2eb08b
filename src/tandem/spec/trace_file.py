"""Traces of requests: Azure's LLM inference CSV, or JSON like ShareGPT's."""

import calendar
import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from tandem.spec.errors import ConfigError, shown
from tandem.spec.units import is_count
from tandem.spec.workload import MAX_TOKENS, RequestShape, Workload

_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(\.\d+)?(?:Z|\+00:00)?", re.ASCII
)
# Of seconds since 1970 there are 10 digits; 13 are milliseconds.
_SECONDS = re.compile(r"\d{1,12}(\.\d+)?", re.ASCII)
_CHARACTERS_PER_TOKEN = 4
_MAX_FILE_BYTES = 1 << 30


def read_trace(path: Path) -> Workload:
    """The requests of a trace file.

    CSV: a header `TIMESTAMP,ContextTokens,GeneratedTokens`, as in the Azure LLM inference traces of
    2023 and 2024; timestamps are dates or seconds. JSON: a list of objects with `prompt_tokens` and
    `generated_tokens`, or with ShareGPT's `conversations`, whose tokens are estimated.

    Raises:
        ConfigError: unreadable, empty, or malformed (names the line or the entry).
    """
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise _error(path, "larger than 1 GiB; cut it")
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise _error(path, f"{error.strerror or error}; give a readable file") from None
    except UnicodeDecodeError:
        raise _error(path, "not UTF-8 text; give a CSV or JSON file") from None
    if not text.strip():
        raise _error(path, "empty; give one with at least one request")
    if text.lstrip()[0] in "[{":
        return _read_json(path, text)
    return Workload(f"trace {path.name}", tuple(_in_order(_read_csv(path, text))))


def _in_order(requests: Iterator[RequestShape]) -> list[RequestShape]:
    """Sorted by arrival, and the first one at 0."""
    ordered = sorted(requests, key=lambda request: request.arrival_s)
    start_s = ordered[0].arrival_s if ordered else 0.0
    return [
        RequestShape(request.prompt_tokens, request.generated_tokens, request.arrival_s - start_s)
        for request in ordered
    ]


def _read_csv(path: Path, text: str) -> Iterator[RequestShape]:
    rows = _rows(path, text)
    _, first = next(rows, (1, list[str]()))
    header = [name.strip() for name in first]
    missing = [name for name in _COLUMNS if name not in header]
    if missing:
        wanted = ",".join(_COLUMNS)
        raise _error(path, f"line 1: the header lacks {missing[0]}; it must be {wanted}")
    places = [header.index(name) for name in _COLUMNS]
    for line, row in rows:
        if not row:
            continue
        where = f"line {line}"
        if len(row) != len(header):
            raise _error(path, f"{where}: {len(row)} fields where the header has {len(header)}")
        arrival, prompt, generated = (row[place].strip() for place in places)
        yield RequestShape(
            _count(path, where, "ContextTokens", prompt),
            _count(path, where, "GeneratedTokens", generated),
            _arrival_s(path, where, arrival),
        )


def _rows(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Fields of each row, and the line that it ends in."""
    rows = csv.reader(text.splitlines())
    try:
        for row in rows:
            yield rows.line_num, row
    except csv.Error as error:
        raise _error(path, f"line {rows.line_num}: not CSV ({error}); mend it") from None


def _count(path: Path, where: str, name: str, value: object) -> int:
    count = int(value) if isinstance(value, str) and is_count(value) else value
    is_whole = isinstance(count, int) and not isinstance(count, bool)
    if not is_whole or not 1 <= cast(int, count) <= MAX_TOKENS:
        wanted = f"must be a whole number from 1 to {MAX_TOKENS}"
        raise _error(path, f"{where}: {name} {wanted}, not {shown(count)}")
    return cast(int, count)


def _arrival_s(path: Path, where: str, text: str) -> float:
    if _SECONDS.fullmatch(text):
        return float(text)
    if match := _TIMESTAMP.fullmatch(text):
        fields = tuple(int(match[group]) for group in range(1, 7))
        if not _is_moment(*fields):
            raise _error(path, f"{where}: TIMESTAMP {shown(text)} is no date with time; mend it")
        return calendar.timegm((*fields, 0, 0, 0)) + float(match[7] or 0)
    raise _error(path, f"{where}: TIMESTAMP {shown(text)} is neither a date with time nor seconds")


def _is_moment(year: int, month: int, day: int, hour: int, minute: int, second: int) -> bool:
    if year < 1 or not 1 <= month <= 12:
        return False
    days = calendar.monthrange(year, month)[1]
    return 1 <= day <= days and hour < 24 and minute < 60 and second < 60


def _read_json(path: Path, text: str) -> Workload:
    try:
        entries: Any = json.loads(text, parse_int=_json_int)
    except (ValueError, RecursionError) as error:
        raise _error(path, f"not JSON ({error}); mend it") from None
    if not isinstance(entries, list):
        raise _error(path, "JSON, but no list of requests; give a list")
    requests: list[RequestShape] = []
    estimated = False
    for number, entry in enumerate(cast("list[Any]", entries), start=1):
        if not isinstance(entry, dict):
            raise _error(path, f"entry {number} is no object")
        shape, guessed = _entry(path, f"entry {number}", cast("dict[str, Any]", entry))
        estimated |= guessed
        if shape is not None:
            requests.append(shape)
    note = f"{path.name}: tokens estimated as {_CHARACTERS_PER_TOKEN} characters each"
    return Workload(f"trace {path.name}", tuple(requests), (note,) if estimated else ())


def _json_int(digits: str) -> int | str:
    """One that int() would refuse is left as it is written, so that its entry can be named."""
    return int(digits) if is_count(digits.removeprefix("-")) else digits


def _entry(path: Path, where: str, entry: dict[str, Any]) -> tuple[RequestShape | None, bool]:
    """A request, or None for a conversation without an answer; and if its tokens are a guess."""
    if "conversations" not in entry:
        for name in ("prompt_tokens", "generated_tokens"):
            if name not in entry:
                raise _error(path, f"{where} has neither 'conversations' nor '{name}'")
        prompt = _count(path, where, "prompt_tokens", entry["prompt_tokens"])
        generated = _count(path, where, "generated_tokens", entry["generated_tokens"])
        return RequestShape(prompt, generated), False
    turns = entry["conversations"]
    is_list = isinstance(turns, list)
    if not is_list or not all(isinstance(turn, dict) for turn in cast("list[Any]", turns)):
        raise _error(path, f"{where}: 'conversations' must be a list of objects")
    texts = [str(turn.get("value", "")) for turn in cast("list[dict[str, Any]]", turns)[:2]]
    if len(texts) < 2 or not all(texts):
        return None, True
    prompt, generated = (max(1, len(text) // _CHARACTERS_PER_TOKEN) for text in texts)
    return RequestShape(prompt, generated), True


def _error(path: Path, what: str) -> ConfigError:
    return ConfigError(f"trace {path}: {what}", param="trace")
