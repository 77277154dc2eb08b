"""What an engine really did, as a trace for Perfetto: its loop, its queues, their overlap."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tandem.plan.executed_op import ExecutedOp
from tandem.plan.program import Part, ProgramOp, Queue, StepProgram
from tandem.plan.trace_file import TraceFile, fields, operation_label
from tandem.runtime.overlap_meter import OverlapMeter, StepOverlap
from tandem.spec.config import EngineConfig
from tandem.spec.units import parse_size

_LOG = logging.getLogger(__name__)

LOOP_ROW = "engine loop"
QUEUE_ROWS = (Queue.ACCEL, Queue.H2D, Queue.D2H, Queue.WEIGHTS, Queue.DISK, Queue.CPU)
_ROW_OF = {queue: row for row, queue in enumerate(QUEUE_ROWS, 1)}
_KEPT_WAYS = 64
_KEPT_LANES, _KEPT_OPS = 256, 65_536


class EngineTrace:
    """Writes spans of the engine's loop and of operations.

    Nothing is written before `start`: steps that warm the engine up are not shown.

    Args:
        clock: the executor's.
    """

    def __init__(self, file: TraceFile, clock: Callable[[], float]) -> None:
        self._file, self._clock = file, clock
        self._ways: dict[int, str] = {}
        self._since_s: float | None = None
        self._of_lanes: dict[tuple[int, tuple[int, ...]], str] = {}
        self._of_op: dict[int, tuple[ProgramOp, str, str]] = {}

    def start(self, overlap: OverlapMeter | None) -> None:
        """Write from now on, and what `overlap` says of each step."""
        self._since_s = self._clock()
        if overlap is not None:
            overlap.on_step(self._overlapped)

    def executed(self, ran: ExecutedOp) -> None:
        """An operation has ended; an `OpListener`."""
        if self._since_s is not None:
            _, name, of_op = self._known(ran.op)
            args = f"{self._lanes(ran)}{of_op}"
            if ran.op.joins is not None:
                args += "," + fields({"joined": ran.op.joins in ran.lanes})
            if ran.num_layers:
                name = f"layers {ran.op.layer} to {ran.op.layer + ran.num_layers - 1}"
            self._file.span(_ROW_OF[ran.op.queue], name, ran.start_s, ran.end_s, args)

    def begin(self) -> None:
        """An iteration of the loop begins."""
        self._since_s = self._clock()

    def scheduled(self, programs: Sequence[StepProgram], way: str) -> None:
        """Programs were made; `way` is what the strategy calls its choice."""
        for program in programs:
            self._ways[program.step_id] = way
        while len(self._ways) > _KEPT_WAYS:
            del self._ways[next(iter(self._ways))]
        steps = [program.step_id for program in programs]
        rows = sum(len(lane.binding.rows) for program in programs for lane in program.lanes)
        args = {"steps": steps, "rows": rows} | ({"way": way} if way else {})
        self.lap("schedule", args if steps else {})

    def lap(self, name: str, args: dict[str, Any] | None = None) -> None:
        """What the loop did since the last lap has a name."""
        now_s = self._clock()
        assert self._since_s is not None
        if now_s > self._since_s or args:
            self._file.span(0, name, self._since_s, now_s, fields(args or {}))
        self._since_s = now_s

    def end(self) -> None:
        """An iteration has ended: what it did can be written."""
        self._file.flush()

    def close(self) -> None:
        """Write what is left."""
        self._file.close()

    def _lanes(self, ran: ExecutedOp) -> str:
        """What is told of all operations of a step that work on the same lanes."""
        program = ran.program
        key = (program.step_id, ran.lanes)
        if key not in self._of_lanes:
            if len(self._of_lanes) >= _KEPT_LANES:
                self._of_lanes.clear()
            args: dict[str, Any] = {"step": program.step_id, "program": program.template.name}
            if program.lanes:
                cohorts = [program.lanes[lane].cohort_id for lane in ran.lanes]
                args["lanes"] = [f"cohort {cohort}" if cohort else "main" for cohort in cohorts]
            if ran.lanes:
                args |= {"rows": ran.num_rows, "tokens": ran.num_tokens}
            if way := self._ways.get(program.step_id):
                args["way"] = way
            self._of_lanes[key] = fields(args)
        return self._of_lanes[key]

    def _known(self, op: ProgramOp) -> tuple[ProgramOp, str, str]:
        """An operation's name, and what is told of it in every step; templates keep theirs."""
        known = self._of_op.get(id(op))
        if known is None or known[0] is not op:
            if len(self._of_op) >= _KEPT_OPS:
                self._of_op.clear()
            args = "," + fields({"layer": op.layer}) if _is_of_a_layer(op) else ""
            known = self._of_op[id(op)] = (op, _name(op), args)
        return known

    def _overlapped(self, step: StepOverlap) -> None:
        idle, hidden = step.totals.accel_idle_share, step.totals.hidden_share
        for name, share in (("accelerator idle share", idle), ("CPU attention hidden", hidden)):
            if share is not None:
                self._file.counter(name, step.end_s, round(share, 4))


def open_trace(config: EngineConfig, clock: Callable[[], float]) -> EngineTrace:
    """The trace that a configuration names.

    Args:
        clock: the executor's; now is shown as 0.

    Raises:
        ConfigError: its file cannot be written.
    """
    assert config.trace is not None
    file = TraceFile(
        Path(config.trace),
        f"tandem {config.model}",
        (LOOP_ROW, *(queue.value for queue in QUEUE_ROWS)),
        limit_bytes=parse_size(config.trace_limit, param="trace_limit"),
        origin_s=clock(),
        ended_early=lambda message: _LOG.warning("the trace %s", message),
        param="trace",
    )
    return EngineTrace(file, clock)


def _name(op: ProgramOp) -> str:
    label = operation_label(op)
    return f"{label} {op.layer}" if _is_of_a_layer(op) else label


def _is_of_a_layer(op: ProgramOp) -> bool:
    return op.layer >= 0 and op.part not in (Part.EMBED, Part.HEAD)
