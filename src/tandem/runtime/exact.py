"""The emulated accelerator in exact mode: all maths, in the most awkward legal order.

Every queue runs in order, but which queue moves next is drawn by seed among all that their waits
permit, and each operation has a start, at which its destinations are poisoned, and a later end, at
which they are written. A missing wait, copy or reservation therefore fails a test instead of
happening to work. Guarded joins that are not ready may be refused.
"""

import random
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from tandem.plan.events import Event, Failed
from tandem.plan.program import OpKind, Part, Queue, StepProgram
from tandem.plan.template_builder import HOST_QKV, QKV, SLOTS, TOKENS
from tandem.runtime.executor import Rank
from tandem.runtime.machine import Machine
from tandem.runtime.poison import poison_blocks, poison_slots
from tandem.runtime.running import Running
from tandem.spec.tier import Tier

if TYPE_CHECKING:
    from tandem.plan.executed_op import OpListener
    from tandem.runtime.host_tasks import GatedTask

_REFUSE_JOIN = 0.3
_PACES = (0.05, 1.0, 1.0)
_MAX_STEPS_PER_POLL = 12
_QUEUES = tuple(Queue)  # an enumeration goes through its members by name each time


class DeadlockError(RuntimeError):
    """No operation can start: the programs wait for each other."""


class ExactExecutor:
    """Deterministic in (programs, calls, seed).

    Args:
        seed: of the adversarial order.
        listeners: told of every operation that has ended. Its times are those of its maths here,
            where one operation runs after the other: steps have none.
    """

    def __init__(
        self, machine: Machine, seed: int = 0, listeners: "Sequence[OpListener]" = ()
    ) -> None:
        self._machine = machine
        self._listeners = tuple(listeners)
        self._random = random.Random(seed)
        # some queues crawl: a cohort is often late, a copy often outruns the maths
        self._pace = {queue: self._random.choice(_PACES) for queue in Queue}
        self._queues: dict[Queue, deque[Running]] = {queue: deque() for queue in Queue}
        self._started: dict[Queue, Running] = {}
        self._done = dict.fromkeys(Queue, 0)
        self._events: list[Event] = []
        self._host_task: GatedTask | None = None  # of the CPU queue's operation under way
        self._failed = False

    @property
    def rank(self) -> Rank:
        """Alone."""
        return Rank()

    def submit(self, program: StepProgram) -> None:
        """Queue all operations; none runs before the next `poll`."""
        context = self._machine.prepare(program)
        for op in context.program.template.ops:
            self._queues[op.queue].append(Running(op, context))

    def poll(self, *, wait: bool) -> list[Event]:
        """Advance queues: until something happens if `wait`, else by a few drawn operations."""
        if wait:
            while not self._events and not self._failed:
                self._advance(must=True)
        else:
            for _ in range(self._random.randrange(_MAX_STEPS_PER_POLL)):
                if not self._advance(must=False):
                    break
        events, self._events = self._events, []
        return events

    def release_cohort(self, cohort_id: int) -> None:
        """Free a finished cohort's buffers."""
        self._machine.release_cohort(cohort_id)

    def close(self) -> None:
        """Run what is in flight to its end."""
        while not self._failed and (self._started or any(self._queues.values())):
            self._advance(must=True)

    # --- the adversary ----------------------------------------------------------------------------

    def _advance(self, *, must: bool) -> bool:
        """Start or end one drawn operation; False if none can move."""
        choices = [queue for queue in _QUEUES if queue in self._started or self._can_start(queue)]
        if self._failed or not choices:
            if must and not self._failed:
                heads = [str(q[0]) for q in self._queues.values() if q]
                raise DeadlockError(f"nothing can run; queue heads: {heads}")
            return False
        paces = [self._pace[queue] for queue in choices]
        queue = self._random.choices(choices, paces)[0]
        try:
            if queue in self._started:
                self._end(queue)
            else:
                self._start(queue)
        except Exception as error:  # noqa: BLE001 - reported as Failed
            self._failed = True
            step = self._current(queue).context.program.step_id
            self._events.append(Failed(step, f"{type(error).__name__}: {error}"))
        return True

    def _current(self, queue: Queue) -> Running:
        return self._started[queue] if queue in self._started else self._queues[queue][0]

    def _can_start(self, queue: Queue) -> bool:
        if not self._queues[queue]:
            return False
        running = self._queues[queue][0]
        for on, value in running.waits():
            if self._done[on] < value:
                return False
        joins = running.op.joins
        return joins is None or self._decides(running, joins)

    def _decides(self, running: Running, joins: int) -> bool:
        """Whether it is known now if a lane joins; a refused one is noted in the guards."""
        refused = self._machine.is_refused(running)
        if not refused and self._machine.cohort_ready(running):
            return True
        guarded = self._machine.is_guarded(running)
        if refused or (guarded and self._random.random() < _REFUSE_JOIN):
            running.context.guards[joins] = False
            return True
        return joins in running.context.guards

    def _start(self, queue: Queue) -> None:
        running = self._queues[queue].popleft()
        self._started[queue] = running
        joins = running.op.joins
        if joins is not None and running.context.guards.get(joins, True):
            self._machine.joined(running)
        self._machine.begin(running)
        self._poison(running)
        tasks = self._machine.host_tasks
        if queue is Queue.CPU and tasks is not None and tasks.takes(running.op):
            from tandem.runtime.host_tasks import GatedTask

            self._host_task = GatedTask(tasks.prepare(running))

    def _end(self, queue: Queue) -> None:
        running = self._started[queue]
        start_s = time.perf_counter()
        if queue is Queue.CPU and self._host_task is not None:
            self._run_host_task(running, self._host_task)
        else:
            self._machine.run(running)
        if self._listeners:
            ran = running.context.executed(running.op, start_s, time.perf_counter())
            for listener in self._listeners:
                listener(ran)
        del self._started[queue]
        self._done[queue] += 1
        self._events += self._machine.finish(running)

    def _run_host_task(self, running: Running, task: "GatedTask") -> None:
        """Native threads see no poison: what they are about to read is looked at first."""
        self._host_task = None
        context = running.context
        for ref in running.op.reads:
            if ref.name != HOST_QKV or ref.lane not in context.active(running.op):
                continue
            if context.lanes[ref.lane].staging is not None:  # a batch may have nothing there
                key = (ref.name, context.lanes[ref.lane].key)
                self._machine.buffers.get(key, running.op.queue, running)
        task.run()

    # --- poison -----------------------------------------------------------------------------------

    def _poison(self, running: Running) -> None:
        op, context, machine = running.op, running.context, self._machine
        active = context.active(op)
        for ref in op.writes:
            if ref.name in (QKV, TOKENS, SLOTS) or ref.lane not in active:
                continue
            if context.lanes:
                machine.buffers.poison((ref.name, context.lanes[ref.lane].key), running)
        if op.kind in (OpKind.LOAD, OpKind.READ):
            machine.runner.poison_weights(op)
        elif op.kind is OpKind.APPEND:
            self._poison_slots(running, active)
        elif op.kind is OpKind.SWEEP:
            self._poison_sweep(running, active)
        elif op.kind is OpKind.SAMPLE:
            rows = context.program.sampling[op.lanes[0]].rows
            machine.slots[rows.tolist()] = -1
        elif op.part in (Part.CACHE, Part.PREFIX):
            assert machine.runner.blocks is not None
            machine.runner.blocks.copies.poison(running)
        elif op.part is Part.PAGES:
            transfer = context.pages[(op.queue, op.ordinal)]
            target = machine.kv.all_layers(transfer.target, op.queue)
            page = machine.kv.page.on(transfer.target)
            poison_blocks(target, transfer.target_blocks.tolist(), page)

    def _poison_sweep(self, running: Running, active: tuple[int, ...]) -> None:
        kv = self._machine.kv
        for index in active:
            decode = running.context.lanes[index].decode
            assert decode is not None
            slots = torch.from_numpy(decode.slots)
            for layer in range(kv.page.num_layers):
                pages = kv.layer(Tier.DEVICE, layer, running.op.queue)
                poison_slots(pages, slots, kv.page.on(Tier.DEVICE))

    def _poison_slots(self, running: Running, active: tuple[int, ...]) -> None:
        op = running.op
        tier = op.tier if op.tier is not None else Tier.DEVICE
        kv = self._machine.kv
        pages = kv.layer(tier, op.layer, op.queue)
        for index in active:
            slots = running.context.lanes[index].tiers[tier].slots
            if slots is not None:
                poison_slots(pages, slots, kv.page.on(tier))
