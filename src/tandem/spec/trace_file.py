"""Traces of requests: Azure's LLM inference CSV, or JSON like ShareGPT's."""

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from tandem.spec.trace_fields import moment_s, token_count, trace_error
from tandem.spec.trace_json import read_json_trace
from tandem.spec.workload import RequestShape, Workload

_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_MAX_FILE_BYTES = 1 << 30


def is_batch_file(path: Path) -> bool:
    """Whether the first line is a request in the form of OpenAI's Batch API, whose prompts are text
    that only the model's tokenizer can count.
    """
    if not path.is_file():
        return False  # what a pipe holds can be read only once, and belongs to who reads the trace
    try:
        with path.open("rb") as file:
            lines = iter(lambda: file.readline(_MAX_FILE_BYTES), b"")
            first = next((line for line in lines if line.strip()), b"")
        entry = json.loads(first.decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return False  # who reads it as a trace says what is wrong with it
    return isinstance(entry, dict) and "body" in entry and "prompt_tokens" not in entry


def read_trace(path: Path) -> Workload:
    """The requests of a trace file; those that generate no token are left out, and noted.

    CSV: a header `TIMESTAMP,ContextTokens,GeneratedTokens`, as in the Azure LLM inference traces of
    2023 and 2024; timestamps are dates or seconds. JSON: a list of objects, or one in each line,
    with `prompt_tokens` and `generated_tokens`, or with ShareGPT's `conversations`, whose tokens
    are estimated; each with a `timestamp`, or none.

    Raises:
        ConfigError: unreadable, empty, or malformed (names the line or the entry).
    """
    text = _text(path)
    if text.lstrip()[0] in "[{":
        found = read_json_trace(path, text)
        return _workload(path, found.requests, found.notes(), timed=bool(found.timed))
    return _workload(path, list(_read_csv(path, text)), (), timed=True)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise trace_error(path, "larger than 1 GiB; cut it")
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise trace_error(path, f"{error.strerror or error}; give a readable file") from None
    except UnicodeDecodeError:
        raise trace_error(path, "not UTF-8 text; give a CSV or JSON file") from None
    if not text.strip():
        raise trace_error(path, "empty; give one with at least one request")
    return text


def _workload(
    path: Path, read: Sequence[RequestShape], notes: tuple[str, ...], *, timed: bool
) -> Workload:
    """Those that generate tokens, in order of arrival, the first one at 0."""
    kept = [request for request in read if request.generated_tokens]
    if silent := len(read) - len(kept):
        notes += (f"{path.name}: {silent:,} of {len(read):,} requests generate no token: left out",)
    if read and not kept:
        few = f"none of its {len(read):,} requests generates a token"
        raise trace_error(path, f"{few}; give one with requests that do")
    kept.sort(key=lambda request: request.arrival_s)
    start_s = kept[0].arrival_s if kept else 0.0
    shapes = tuple(
        RequestShape(request.prompt_tokens, request.generated_tokens, request.arrival_s - start_s)
        for request in kept
    )
    return Workload(f"trace {path.name}", shapes, notes, timed)


def _read_csv(path: Path, text: str) -> Iterator[RequestShape]:
    rows = _rows(path, text)
    _, first = next(rows, (1, list[str]()))
    header = [name.strip() for name in first]
    missing = [name for name in _COLUMNS if name not in header]
    if missing:
        wanted = ",".join(_COLUMNS)
        raise trace_error(path, f"line 1: the header lacks {missing[0]}; it must be {wanted}")
    places = [header.index(name) for name in _COLUMNS]
    for line, row in rows:
        if not row:
            continue
        where = f"line {line}"
        if len(row) != len(header):
            raise trace_error(
                path, f"{where}: {len(row)} fields where the header has {len(header)}"
            )
        arrival, prompt, generated = (row[place].strip() for place in places)
        yield RequestShape(
            token_count(path, where, "ContextTokens", prompt),
            token_count(path, where, "GeneratedTokens", generated, least=0),
            moment_s(path, where, "TIMESTAMP", arrival),
        )


def _rows(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Fields of each row, and the line that it ends in."""
    rows = csv.reader(text.splitlines())
    try:
        for row in rows:
            yield rows.line_num, row
    except csv.Error as error:
        raise trace_error(path, f"line {rows.line_num}: not CSV ({error}); mend it") from None
