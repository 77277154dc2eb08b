"""Traces that Perfetto and Chrome show: the Trace Event Format's array, written as it comes."""

import contextlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tandem.plan.program import OpKind, ProgramOp
from tandem.spec.errors import ConfigError
from tandem.spec.units import format_size

_HELD_EVENTS = 4096
_PROCESS = 1
_MICRO = 1e6


class TraceFile:
    """Rows of spans, and counters over time. Safe from several threads.

    Events are held back until `flush`, or until there are some thousand. What is on the disk is
    readable at any moment: the format permits that the array's end is missing.

    Args:
        process: what the rows belong to. rows: their names, from above.
        limit_bytes: of the file; None: no limit. What comes after is dropped.
        origin_s: moment that is shown as 0, on the clock of all the others.
        ended_early: told in words if not all will be there: the limit is reached, or the disk full.
        param: option that named the file.

    Raises:
        ConfigError: the file cannot be written.
    """

    def __init__(
        self,
        path: Path,
        process: str,
        rows: Sequence[str],
        *,
        limit_bytes: int | None = None,
        origin_s: float = 0.0,
        ended_early: Callable[[str], None] = lambda message: None,
        param: str,
    ) -> None:
        self._path, self._limit_bytes, self._origin_s = path, limit_bytes, origin_s
        self._ended_early = ended_early
        self._lock = threading.Lock()
        self._held: list[str] = []
        self._size_bytes = self._events = 0
        self._over = False
        try:
            self._file = path.open("w", encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"cannot write {path}: {error.strerror or error}; name another file", param=param
            ) from None
        self._add(_metadata("process_name", 0, name=process))
        for row, name in enumerate(rows):
            self._add(_metadata("thread_name", row, name=name))
            self._add(_metadata("thread_sort_index", row, sort_index=row))
        self.flush()

    def span(self, row: int, name: str, start_s: float, end_s: float, args: str = "") -> None:
        """Something took a row's time.

        Args:
            args: what is told of it, from `fields`: made once for many spans, it costs nothing.
        """
        begin, last = (start_s - self._origin_s) * _MICRO, (end_s - start_s) * _MICRO
        self._add(
            f'{{"ph":"X","pid":{_PROCESS},"tid":{row},"name":{_quoted(name)},"ts":{begin:.3f},'
            f'"dur":{last:.3f},"args":{{{args}}}}}'
        )

    def counter(self, name: str, time_s: float, value: float) -> None:
        """A value that holds from here on."""
        moment = round((time_s - self._origin_s) * _MICRO, 3)
        self._add(_event(ph="C", tid=0, name=name, ts=moment, args={"": value}))

    def flush(self) -> None:
        """Write what is held."""
        with self._lock:
            self._write()

    def close(self) -> None:
        """Write what is held, and the array's end."""
        with self._lock:
            self._write()
            self._over = True
            if self._file.closed:
                return
            try:
                self._file.write("\n]\n")
                self._file.close()
            except OSError as error:
                self._give_up(error)

    def _add(self, event: str) -> None:
        if self._over:
            return
        with self._lock:
            self._held.append(event)
            if len(self._held) >= _HELD_EVENTS:
                self._write()

    def _write(self) -> None:
        held, self._held = self._held, []
        if self._over or not held:
            return
        text = "".join(map(self._line, held))
        if self._limit_bytes is not None and self._size_bytes + len(text) > self._limit_bytes:
            self._over = True
            limit = format_size(self._limit_bytes)
            moment = json.loads(held[0]).get("ts", 0)
            text = self._line(_event(ph="i", s="g", tid=0, name=f"limit of {limit}", ts=moment))
            self._ended_early(f"{self._path} has reached {limit}; what follows is not in it")
        try:
            self._file.write(text)
            self._file.flush()
        except OSError as error:
            self._give_up(error)
            return
        self._size_bytes += len(text)

    def _line(self, event: str) -> str:
        """An element of the array, with the comma before it."""
        self._events += 1
        return f"{'[' if self._events == 1 else ','}\n{event}"

    def _give_up(self, error: OSError) -> None:
        """A full disk ends the trace, not what is traced."""
        self._over = True
        with contextlib.suppress(OSError):  # it writes what it holds, once more
            self._file.close()
        self._ended_early(f"{self._path} cannot be written on ({error.strerror or error})")


def operation_label(op: ProgramOp) -> str:
    """An operation in one word: the stage, what is copied, or what is done."""
    plain = op.kind in (OpKind.STAGE, OpKind.COPY)
    return op.part.value if plain else op.kind.value


def fields(args: Mapping[str, Any]) -> str:
    """What is told of a span, as JSON without its braces; may be joined to others by commas."""
    return json.dumps(args, separators=(",", ":"))[1:-1]


def _metadata(what: str, row: int, **args: Any) -> str:
    return _event(ph="M", tid=row, name=what, args=args)


def _event(**fields: Any) -> str:
    return json.dumps(fields | {"pid": _PROCESS}, separators=(",", ":"))


@lru_cache(maxsize=8192)
def _quoted(name: str) -> str:
    return json.dumps(name)
