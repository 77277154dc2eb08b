"""Streams that wait for the CPU's part by themselves: which may, and when.

A copy to the device is launched behind the CPU's attention before that has ended, so that neither a
thread's wake-up nor the launch comes after it. Until then its stream stands still, and what shares
the device's hardware queue with it, or synchronises with the device. So a stream waits only for a
native task that needs nothing more of the device, of Python or of any other stream: what it waits
for has come, and what is before it on the CPU queue has ended. Then it ends by itself, whoever else
stands still, and raises its counter even if it fails.

Import this module only if `native.available()`.
"""

from typing import Protocol

from tandem.plan.program import OpKind, Part, Queue
from tandem.runtime.running import Running
from tandem.runtime.task_queue import TaskQueue


class ValueWaits(Protocol):
    """A device whose streams can wait for the CPU queue's counter."""

    def wait(self, queue: Queue, on: Queue, value: int) -> bool:
        """See `QueueDriver`."""
        ...

    def stand_behind_cpu(self, queue: Queue, value: int) -> bool:
        """What is launched on `queue` next waits on the device until the CPU queue has reached
        `value`; False if streams have been released.
        """
        ...

    def release(self) -> None:
        """Let every stream go on that waits so, and no other begin to, since the work may never be
        done; from any thread.
        """
        ...


class StreamWaits:
    """Decides for each operation, and has its stream wait."""

    def __init__(self, device: ValueWaits, tasks: TaskQueue) -> None:
        self._device = device
        self._tasks = tasks

    @staticmethod
    def takes(running: Running) -> bool:
        """Whether an operation's stream may wait: it is the copy to the device of what the CPU has
        attended to, joins nothing, and reads memory that the device copies from by itself. Other
        memory is read by the thread that launches the copy, so at once.
        """
        op, context = running.op, running.context
        is_partial = (op.kind, op.queue, op.part) == (OpKind.COPY, Queue.H2D, Part.PARTIAL)
        if not is_partial or op.joins is not None:
            return False
        lanes = (context.lanes[index] for index in op.lanes)
        return all(lane.staging is not None and lane.staging.pinned for lane in lanes)

    def order(self, queue: Queue, value: int, timeout_s: float) -> bool | None:
        """Have the stream wait until the CPU queue has reached `value`, once that is sure.

        Returns:
            False: it is not yet, after about `timeout_s`, or streams have been released. None: a
            thread must wait, since Python executes what is waited for, or it has been reported.
        """
        if not self._tasks.await_announced(value, timeout_s):
            return False
        inputs = self._tasks.inputs_of(value)
        if inputs is None:
            return None
        # by events, which wake a thread; what a stream has written does not
        if not all(self._device.wait(Queue.CPU, on, point) for on, point in inputs):
            return False
        return self._device.stand_behind_cpu(queue, value)

    def release(self) -> None:
        """See `ValueWaits`."""
        self._device.release()
