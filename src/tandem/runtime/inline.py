"""The host interpreter: operations run in program order, on the caller's thread."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from tandem.plan.events import Event, Failed
from tandem.plan.program import ProgramOp, ProgramTemplate, Queue, StepProgram
from tandem.runtime.executor import Rank
from tandem.runtime.machine import Machine
from tandem.runtime.op_groups import OpGroup, group_layers
from tandem.runtime.program_context import ProgramContext
from tandem.runtime.running import Running

if TYPE_CHECKING:
    from tandem.plan.executed_op import OpListener
    from tandem.runtime.layer_runner import LayerRunner


class InlineExecutor:
    """Runs each program to its end inside `submit`.

    With `--accelerator none` everything happens on the same cores, so that queues of their own
    would only compete; a template's order is a topological one, so no signal needs waiting for.

    Args:
        layers: executes whole layers at once, where it can.
        listeners: told of every operation that has ended.
        arrive: called after a copy to the host, waits until it has come; None: copies are made by
            the time they are submitted.
    """

    def __init__(
        self,
        machine: Machine,
        layers: "LayerRunner | None" = None,
        listeners: "Sequence[OpListener]" = (),
        arrive: Callable[[], None] | None = None,
    ) -> None:
        self._machine = machine
        self._layers = layers
        self._listeners = tuple(listeners)
        self._arrive = arrive
        self._groups: dict[int, tuple[ProgramTemplate, tuple[OpGroup, ...]]] = {}
        self._events: list[Event] = []
        self._largest = {False: 0, True: 0}

    @property
    def rank(self) -> Rank:
        """Alone."""
        return Rank()

    def submit(self, program: StepProgram) -> None:
        """Run the program; its events are there at the next `poll`."""
        context = self._machine.prepare(program)
        counts = self._may_peak(program)
        try:
            # entered once: entering it for every operation costs as much as a small one
            with torch.inference_mode():
                for group in self._grouped(context.program.template):
                    self._run_group(group, context, counts=counts)
        except Exception as error:  # noqa: BLE001 - reported as Failed
            self._events.append(Failed(program.step_id, f"{type(error).__name__}: {error}"))

    def _run_group(self, group: OpGroup, context: ProgramContext, *, counts: bool) -> None:
        if self._layers is not None and self._layers.can_run(group, context):
            start_s = time.perf_counter()
            self._layers.run(group, context)
            self._stamp(group.ops[0], context, start_s, group.num_layers)
            self._events += self._machine.report_all(group.ops, context)
            return
        for op in group.ops:
            self._run(Running(op, context), counts=counts)

    def _grouped(self, template: ProgramTemplate) -> tuple[OpGroup, ...]:
        known = self._groups.get(id(template))
        if known is None:  # kept with its template, so that no other can get the same id
            known = self._groups[id(template)] = (template, group_layers(template))
        return known[1]

    def _may_peak(self, program: StepProgram) -> bool:
        """True if no step before was larger: only then is the memory of single operations counted,
        since that takes a few percent of a small model's step.
        """
        sampling = bool(program.sampling)
        tokens = sum(lane.binding.num_tokens for lane in program.lanes)
        size = sum(len(rows.rows) for rows in program.sampling) if sampling else tokens
        self._largest[sampling] = max(size, self._largest[sampling])
        return size == self._largest[sampling]

    def _run(self, running: Running, *, counts: bool) -> None:
        machine = self._machine
        if running.op.joins is not None and not machine.cohort_ready(running):
            raise RuntimeError(f"{running}: a cohort's attention never ran")
        start_s = time.perf_counter()
        if counts:
            machine.begin(running)
            machine.run(running)
        else:
            machine.runner.run(running)
        if self._arrive is not None and running.op.queue is Queue.D2H:
            self._arrive()
        self._stamp(running.op, running.context, start_s)
        self._events += machine.finish(running)

    def _stamp(
        self, op: ProgramOp, context: ProgramContext, start_s: float, num_layers: int = 0
    ) -> None:
        end_s = time.perf_counter()
        context.stamps.ran(op, start_s, end_s)
        if self._listeners:
            ran = context.executed(op, start_s, end_s, num_layers)
            for listener in self._listeners:
                listener(ran)

    def poll(self, *, wait: bool) -> list[Event]:
        """Events of everything submitted since the last call."""
        del wait  # nothing is ever in flight
        events, self._events = self._events, []
        return events

    def release_cohort(self, cohort_id: int) -> None:
        """Free a finished cohort's buffers."""
        self._machine.release_cohort(cohort_id)

    def close(self) -> None:
        """Nothing is in flight; memory goes with the object."""
