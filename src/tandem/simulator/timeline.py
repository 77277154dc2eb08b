"""A run as a trace that Perfetto and Chrome show: a row per queue."""

from pathlib import Path

from tandem.plan.trace_file import TraceFile, fields, operation_label
from tandem.planner.fluid.groups import QUEUES
from tandem.planner.fluid.queues import Span
from tandem.simulator.flying import Flying


class Timeline:
    """Writes groups of operations as spans, in virtual time.

    Raises:
        ConfigError: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        rows = [queue.value for queue in QUEUES]
        self._file = TraceFile(path, "tandem simulate", rows, param="timeline")

    def add(self, span: Span) -> None:
        """One group of operations has run."""
        flying = span.submission.label
        assert isinstance(flying, Flying)
        args = fields({"step": flying.step_id, "program": flying.template.name})
        self._file.span(span.queue, _describe(span), span.start_s, span.end_s, args)

    def close(self) -> None:
        """Write what is left."""
        self._file.close()


def _describe(span: Span) -> str:
    """The group's operations by kind, each once, in order."""
    schedule = span.submission.schedule
    ops = schedule.groups[span.group].ops
    return " ".join(dict.fromkeys(operation_label(schedule.ops[index]) for index, _ in ops))
