"""The CPU queue's operations as tasks of native threads, which start and end without Python.

Import this module only if `native.available()`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tandem.kernels import _native
from tandem.kernels.compiled_kernels import CompiledKernels, SplitBatch
from tandem.kernels.dense import AttentionOutput
from tandem.kernels.native_pool import Signal, SignalPoint
from tandem.kernels.tier_kernels import PlannedAttention
from tandem.plan.hybrid_sweep import ALL_LAYERS
from tandem.plan.program import OpKind, ProgramOp
from tandem.plan.template_builder import HOST_PARTIAL
from tandem.runtime.buffers import BufferSpace, Place
from tandem.runtime.host_link import HostLink
from tandem.runtime.kv_store import KVStore
from tandem.runtime.lane_context import LaneContext
from tandem.runtime.running import Running
from tandem.spec.tier import Tier


@dataclass(frozen=True, slots=True)
class HostTask:
    """Work of the CPU queue, checked and ready.

    Attributes:
        parts: tasks, one after another; at least one.
        publish: makes the result known to the operations that read it once it is there.
    """

    parts: tuple[_native.Task, ...]
    publish: Callable[[], None]

    @staticmethod
    def joined(tasks: "Sequence[HostTask]") -> "HostTask":
        """One after another."""

        def publish() -> None:
            for task in tasks:
                task.publish()

        return HostTask(tuple(part for task in tasks for part in task.parts), publish)

    def submit(self, after: Sequence[SignalPoint], then: SignalPoint) -> None:
        """Start once every point of `after` is reached, and raise `then` at the end.

        `then` is raised also if a part failed; `wait` tells.
        """
        between = Signal()
        for number, part in enumerate(self.parts, 1):
            last = number == len(self.parts)
            part.submit(after, then if last else (between, number))
            after = ((between, number),)

    def wait(self) -> None:
        """Block until it has ended. Raises what a part raised."""
        for part in self.parts:
            part.wait()

    def stamps_s(self) -> tuple[float, float]:
        """When its threads began and ended, in seconds of `time.perf_counter`; after `wait`."""
        begun_ns = min(part.start_ns for part in self.parts)
        return begun_ns * 1e-9, max(part.end_ns for part in self.parts) * 1e-9

    def cancel(self) -> None:
        """Take back what has not begun; `wait` then raises."""
        for part in self.parts:
            part.cancel()


@dataclass(frozen=True, slots=True)
class SweepTask:
    """The host's part of all layers of a step, whose inputs a graph brings layer by layer: each
    begins when its rows have come down, and tells when its results may go up.

    Attributes:
        base: what `link`'s counters are at before the step.
    """

    work: _native.Sweep
    link: HostLink
    base: int

    def publish(self) -> None:
        """The graph that reads results waits for them by itself."""

    def submit(self, after: Sequence[SignalPoint], then: SignalPoint) -> None:
        """As `HostTask.submit`; the link's counter is raised, too, if a layer fails."""
        self.work.submit(self.link.down, self.link.up, self.base, after, then)

    def wait(self) -> None:
        """Block until it has ended. Raises what a layer raised."""
        self.work.wait()

    def stamps_s(self) -> tuple[float, float]:
        """When its threads began, and when they would have ended had they not waited for rows, in
        seconds of `time.perf_counter`; after `wait`.
        """
        spans = self.work.spans_ns
        begun_ns = min(start for start, _ in spans)
        return begun_ns * 1e-9, (begun_ns + sum(end - start for start, end in spans)) * 1e-9

    def cancel(self) -> None:
        """Take back what has not begun; `wait` then raises."""
        self.work.cancel()


class GatedTask:
    """A submitted task that waits until it is told to begin."""

    def __init__(self, task: HostTask | SweepTask) -> None:
        self._task = task
        self._gate, self._end = Signal(), Signal()
        task.submit([(self._gate, 1)], (self._end, 1))

    def run(self) -> None:
        """Let it begin, wait for its signal, and publish. Raises what the work raised."""
        self._gate.set(1)
        self._end.wait(1)
        self._task.wait()
        self._task.publish()

    def __del__(self) -> None:
        """Take it back: freeing work that waits for a signal would wait for ever."""
        self._task.cancel()


class HostTasks:
    """Makes tasks of operations, over the pages and kernels of the host tier.

    Inputs and results lie in the lane's staging memory, so that a task can be made before its
    inputs are there.
    """

    def __init__(self, kernels: CompiledKernels, kv: KVStore, buffers: BufferSpace) -> None:
        self.link: HostLink | None = None  # of steps that a graph and the CPU do together
        self._kernels = kernels
        self._kv = kv
        self._buffers = buffers

    @staticmethod
    def takes(op: ProgramOp) -> bool:
        """Whether an operation of the CPU queue can be made a task; stages cannot."""
        return op.kind in (OpKind.APPEND, OpKind.ATTEND)

    def prepare(self, running: Running) -> HostTask | SweepTask:
        """The task of an APPEND or ATTEND on the CPU queue, whose guards are decided.

        Raises:
            ValueError: slots or blocks that do not exist; nothing was started.
        """
        op, context = running.op, running.context
        if op.layer == ALL_LAYERS:
            return self._sweep(running, context.lanes[0])
        lanes = [context.lanes[i] for i in context.active(op)]
        make = self._append if op.kind is OpKind.APPEND else self._attend
        parts = [task for lane in lanes for task in make(running, lane)]

        def publish() -> None:
            if op.kind is OpKind.ATTEND:
                for lane in lanes:
                    self._publish(running, lane)

        return HostTask(tuple(parts or [self._kernels.nothing()]), publish)

    def _sweep(self, running: Running, lane: LaneContext) -> SweepTask:
        tier, staging, arrays = lane.tiers[Tier.HOST], lane.host_staging, lane.hybrid
        assert arrays is not None
        assert self.link is not None
        assert tier.plans is not None
        windows = list(tier.plans.by_window)
        batches = [_compiled(each) for each in tier.plans.by_window.values()]
        work = self._kernels.sweep(
            staging.query, staging.key, staging.value, tier.planned_append,
            self._kv.all_layers(Tier.HOST, running.op.queue), batches,
            [windows.index(window) for window in tier.plans.windows],
            AttentionOutput(staging.out, staging.lse),
        )  # fmt: skip
        return SweepTask(work, self.link, arrays.link.base)

    def _append(self, running: Running, lane: LaneContext) -> list[_native.Task]:
        planned = lane.tiers[Tier.HOST].planned_append
        if planned is None:
            return []
        staging = lane.host_staging
        pages = self._kv.layer(Tier.HOST, running.op.layer, running.op.queue)
        return [self._kernels.append_task(pages, staging.key, staging.value, planned)]

    def _attend(self, running: Running, lane: LaneContext) -> list[_native.Task]:
        plans = lane.tiers[Tier.HOST].plans
        if plans is None:
            return []
        staging = lane.host_staging
        batch = _compiled(plans.of(running.op.layer))
        pages = self._kv.layer(Tier.HOST, running.op.layer, running.op.queue)
        result = AttentionOutput(staging.out, staging.lse)
        return self._kernels.attend_tasks(staging.query, pages, batch, result)

    def _publish(self, running: Running, lane: LaneContext) -> None:
        if lane.tiers[Tier.HOST].plans is not None:
            value = (lane.host_staging.out, lane.host_staging.lse)
            self._buffers.put((HOST_PARTIAL, lane.key), Place.HOST, value, running.op.queue)


def _compiled(plan: PlannedAttention) -> SplitBatch:
    """By the compiled kernels, which alone have tasks."""
    assert isinstance(plan, SplitBatch)
    return plan
