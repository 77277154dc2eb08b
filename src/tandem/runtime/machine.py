"""The memory and maths behind an executor, without any order of execution."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from tandem.devices.signal import Signal
from tandem.plan.cohort_chain import CohortChain
from tandem.plan.events import Event, StepRetired
from tandem.plan.program import LaneSlot, OpKind, ProgramOp, Queue, StepProgram
from tandem.runtime.arena import Arena
from tandem.runtime.buffers import BufferSpace
from tandem.runtime.kv_store import KVStore
from tandem.runtime.op_runner import OpRunner
from tandem.runtime.program_context import ContextCache, ProgramContext
from tandem.runtime.running import Running

if TYPE_CHECKING:
    from tandem.runtime.host_tasks import HostTasks


@dataclass(slots=True, weakref_slot=True)
class Machine:
    """What all interpreters share: buffers, pages, the maths, and cohorts' signals.

    Attributes:
        cohort_signals: per cohort, the number of its host attentions that have completed. chain:
            those that are coming.
        submitted: operations ever given to each queue.
        op_bytes: accelerator memory that an operation takes while it runs.
        host_tasks: makes the CPU queue's operations tasks of native threads; None: they run on the
            thread that executes them.
    """

    device: torch.device
    runner: OpRunner
    kv: KVStore
    buffers: BufferSpace
    arena: Arena
    slots: torch.Tensor
    contexts: ContextCache
    cohort_signals: dict[int, Signal] = field(default_factory=dict)
    chain: CohortChain = field(default_factory=CohortChain)
    submitted: dict[Queue, int] = field(default_factory=lambda: dict.fromkeys(Queue, 0))

    host_tasks: "HostTasks | None" = None
    op_bytes: Callable[[Running], int] = field(default=lambda running: 0)

    @property
    def pinned_bytes(self) -> int:
        """Host memory that is known to the device: weights, pages, activations."""
        blocks = self.runner.blocks
        passing = 0 if blocks is None else blocks.passing.pinned_bytes
        return self.runner.weights.pinned_bytes + self.kv.pinned_bytes + passing

    def begin(self, running: Running) -> None:
        """Charge what an operation takes while it runs.

        Raises:
            ArenaOverflowError: it does not fit beside what lies there.
        """
        self.arena.charge(running.op.queue, self.op_bytes(running))

    def run(self, running: Running) -> None:
        """Do the maths of an operation that has begun; what it leaves is charged by the buffers."""
        self.arena.charge(running.op.queue, 0)
        self.runner.run(running)

    def prepare(self, program: StepProgram) -> ProgramContext:
        """Make a program's context and the signals of its cohorts.

        Returns: with the program that is to be run in its place, perhaps of fewer operations.
        """
        context = self.contexts.make(program)
        template = context.program.template
        context.base = dict(self.submitted)
        context.remaining = len(template.ops)
        context.stamps.submitted_s = time.perf_counter()
        for queue, count in template.counts:
            self.submitted[queue] += count
        for slot in program.lanes:
            if slot.cohort_id and slot.cohort_id not in self.cohort_signals:
                self.cohort_signals[slot.cohort_id] = Signal()
                self.chain.submitted(slot.cohort_id, slot.cohort_signal)
        return context

    def finish(self, running: Running) -> list[Event]:
        """`complete` and `report` at once."""
        self.complete(running)
        return self.report(running)

    def complete(self, running: Running) -> None:
        """After an operation's maths: raise its cohort's signal, for whoever joins."""
        raises, context = running.op.raises, running.context
        if raises is not None and raises in context.active(running.op):
            slot = context.program.lanes[raises]
            self.cohort_signals[slot.cohort_id].set(slot.cohort_signal + 1)

    def require_host_part(self, running: Running) -> None:
        """An operation of the accelerator's has ended: all of it, or it is an error.

        Raises:
            HostLostError: it did not wait for what the host had to do meanwhile.
        """
        self.stood_s(running)

    def stood_s(self, running: Running) -> float:
        """How long the accelerator waited within an operation that has ended, doing nothing."""
        hybrid = self.runner.hybrid
        if hybrid is None or running.op.kind is not OpKind.SWEEP:
            return 0.0
        arrays = running.context.lanes[running.op.lanes[0]].hybrid
        return 0.0 if arrays is None else hybrid.link.waited_s(arrays.link)

    def release(self) -> None:
        """Something failed: nothing on the accelerator may wait for what does not come."""
        if self.runner.hybrid is not None:
            self.runner.hybrid.release()

    def report(self, running: Running) -> list[Event]:
        """What a completed operation tells the scheduler; once, in an order that causes allow."""
        return self.report_all((running.op,), running.context)

    def report_all(self, ops: tuple[ProgramOp, ...], context: ProgramContext) -> list[Event]:
        """`report` of operations of a queue that completed together."""
        events: list[Event] = []
        for op in ops:
            if op.event is not None:
                events += self.runner.events(Running(op, context))
        context.remaining -= len(ops)
        if context.remaining == 0:
            events.append(StepRetired(context.program.step_id, context.stamps.times()))
        return events

    def cohort_ready(self, running: Running) -> bool:
        """True if the lane that this operation joins has its host attention done."""
        slot = self._joined(running)
        return self.cohort_signals[slot.cohort_id].reached(slot.cohort_signal)

    def cohort_wait(self, running: Running, timeout_s: float | None) -> bool:
        """Wait for the lane that this operation joins; False if `timeout_s` passed first."""
        slot = self._joined(running)
        return self.cohort_signals[slot.cohort_id].wait(slot.cohort_signal, timeout_s)

    @staticmethod
    def _joined(running: Running) -> LaneSlot:
        assert running.op.joins is not None
        return running.context.program.lanes[running.op.joins]

    @staticmethod
    def is_guarded(running: Running) -> bool:
        """True if the operation's join may fail."""
        joins = running.op.joins
        return joins is not None and running.context.program.template.lanes[joins].guarded

    def is_refused(self, running: Running) -> bool:
        """True if the operation's join has failed already: the one that it follows has."""
        slot = self._joined(running)
        return self.chain.is_broken(slot.cohort_id, slot.cohort_signal)

    def joined(self, running: Running) -> None:
        """The operation's join has happened."""
        slot = self._joined(running)
        self.chain.joined(slot.cohort_id, slot.cohort_signal)

    def free(self) -> None:
        """Let the device forget the host's memory; nothing may be in flight any more."""
        self.kv.close()
        if self.runner.blocks is not None:
            self.runner.blocks.passing.close()
        self.runner.weights.close()

    def release_cohort(self, cohort_id: int) -> None:
        """Free a finished cohort's residual, staging buffers and signal."""
        self.buffers.drop(cohort_id)
        self.contexts.forget_cohort(cohort_id)
        self.cohort_signals.pop(cohort_id, None)
        self.chain.forget(cohort_id)
