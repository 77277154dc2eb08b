"""A run as a trace that Perfetto and Chrome show: a row per queue."""

import json
from pathlib import Path
from typing import Any

from tandem.plan.program import OpKind
from tandem.planner.fluid_queues import Span
from tandem.planner.schedule import QUEUES
from tandem.simulator.executor import Flying
from tandem.spec.errors import ConfigError


class Timeline:
    """Collects spans as complete events of the Trace Event Format; times in microseconds."""

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = [
            _name("process_name", 0, "tandem simulate"),
            *(_name("thread_name", row, queue.value) for row, queue in enumerate(QUEUES)),
        ]

    def add(self, span: Span) -> None:
        """One group of operations has run."""
        flying = span.submission.label
        assert isinstance(flying, Flying)
        self._events.append(
            {
                "ph": "X",
                "pid": 1,
                "tid": span.queue,
                "ts": span.start_s * 1e6,
                "dur": (span.end_s - span.start_s) * 1e6,
                "name": _describe(span),
                "args": {"step": flying.step_id, "program": flying.template.name},
            }
        )

    def write(self, path: Path) -> None:
        """Write all that was collected.

        Raises:
            ConfigError: the file cannot be written.
        """
        text = json.dumps({"displayTimeUnit": "ms", "traceEvents": self._events})
        try:
            path.write_text(text + "\n", "utf-8")
        except OSError as error:
            raise ConfigError(
                f"cannot write {path}: {error.strerror or error}; name another file",
                param="timeline",
            ) from None


def _name(what: str, row: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": 1, "tid": row, "name": what, "args": {"name": name}}


def _describe(span: Span) -> str:
    """The group's operations by kind, each once, in order."""
    schedule = span.submission.schedule
    names: dict[str, None] = {}
    for index, _ in schedule.groups[span.group].ops:
        op = schedule.ops[index]
        plain = op.kind in (OpKind.STAGE, OpKind.COPY)
        names[op.part.value if plain else op.kind.value] = None
    return " ".join(names)
