"""CUDA: streams as queues, events as their timelines."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Generic, TypeVar

import torch

from tandem.devices.cuda.clock import EventClock
from tandem.devices.cuda.device import device_node
from tandem.devices.cuda.memory import pinned_bytes
from tandem.devices.signal import LONGEST_STAND_S, HostSignal, Signal
from tandem.plan.program import Queue

if TYPE_CHECKING:
    from tandem.devices.stream_counters import StreamCounters

_LIVENESS_CHECK_S = 1.0
RunningT = TypeVar("RunningT")
_STREAMS = (Queue.ACCEL, Queue.H2D, Queue.D2H, Queue.WEIGHTS)


def open_stream_counters(
    device: torch.device, queues: Sequence[Queue], *, waits: bool = False
) -> "StreamCounters":
    """Counters that the streams of some queues can raise.

    Args:
        waits: streams can wait for them as well.

    Raises:
        NoStreamCountersError: not on this device.
    """
    from tandem.devices.stream_counters import StreamCounters

    memory = pinned_bytes(StreamCounters.size_bytes(len(queues)), device_node(device)).zero_()
    stream = torch.cuda.Stream(device)
    counters = StreamCounters(memory, queues, stream.cuda_stream, stream.synchronize)
    if waits:
        other = torch.cuda.Stream(device)
        counters.enable_waits(stream.cuda_stream, stream.query, other.cuda_stream)
    return counters


Spans = Sequence[tuple[float, float]]
"""Of parts of what was launched: when the host began to, and when it ended, in seconds of
`time.perf_counter`."""


@dataclass(slots=True)
class _Launched(Generic[RunningT]):
    """What a stream has been given, and what marks the end of each of its parts."""

    value: int
    running: RunningT
    marks: list[tuple[float, torch.cuda.Event]]

    @property
    def event(self) -> torch.cuda.Event:
        """Reached when all of it has ended."""
        return self.marks[-1][1]


class CudaDriver(Generic[RunningT]):
    """Launches on one stream per queue; the CPU queue runs on its thread.

    A queue waits for another's stream on the device, through an event; only the CPU queue, and the
    thread that reports completions, block a host thread.

    Args:
        completed: called with what has completed on a queue since it was called last, in order,
            and the times of its parts.
        failed: called when the device reports an error; the operation is the first to hear of it,
            not necessarily its cause.
        finished: timelines to raise; by default its own. The CPU queue's may be raised by others.
        counters: of queues whose streams raise their timelines themselves; those lie there. With
            the CPU queue's, and waits, streams can wait for that as `ValueWaits` says.
    """

    def __init__(
        self,
        device: torch.device,
        completed: Callable[[Sequence[tuple[RunningT, Spans]]], None],
        failed: Callable[[RunningT, BaseException], None],
        finished: Mapping[Queue, HostSignal] | None = None,
        counters: "StreamCounters | None" = None,
    ) -> None:
        self._device = device
        self._counters = counters
        self._raised_by_streams = frozenset(counters.addresses if counters else ())
        self._completed = completed
        self._failed = failed
        # the default stream orders the step's metadata uploads before the operations that read them
        self._streams = {
            Queue.ACCEL: torch.cuda.default_stream(device),
            Queue.H2D: torch.cuda.Stream(device),
            Queue.D2H: torch.cuda.Stream(device),
            Queue.WEIGHTS: torch.cuda.Stream(device),
        }
        self._launched = {queue: Signal() for queue in Queue}
        self._finished = finished or {queue: Signal() for queue in Queue}
        self._events: dict[Queue, dict[int, torch.cuda.Event]] = {queue: {} for queue in _STREAMS}
        self._broken = False
        self._standing: dict[Queue, int] = {}  # the CPU's value before a queue's next operation
        self._stands: dict[tuple[Queue, int], int] = {}  # the same, of operations launched
        self._awaited: int | None = None  # the last of the CPU's values that a stream waits for
        self._released = False
        self._lock = threading.Lock()
        self._clock = EventClock(device)
        self._reapers = {
            queue: SimpleQueue[list[_Launched[RunningT]] | None]() for queue in _STREAMS
        }
        self._held: dict[Queue, list[_Launched[RunningT]]] = {queue: [] for queue in _STREAMS}
        self._marks: dict[Queue, list[tuple[float, torch.cuda.Event]]] = {q: [] for q in _STREAMS}
        self._threads = [
            threading.Thread(
                target=self._reap, args=(queue,), name=f"tandem-reap-{queue}", daemon=True
            )
            for queue in _STREAMS
        ]
        for thread in self._threads:
            thread.start()

    def upload(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copy to the device on the current stream; the compute stream will read it."""
        moved = tensor.to(self._device, non_blocking=True)
        moved.record_stream(self._streams[Queue.ACCEL])
        return moved

    def enter(self, queue: Queue) -> None:
        """Make the queue's stream current on this thread, and the device's context.

        Torch's `set_device` does nothing where the device is the thread's already, and the runtime
        makes a context current only when it is called; the driver, called by itself, refuses a
        thread that has none.
        """
        torch.cuda.set_device(self._device)
        if queue in self._streams:
            torch.cuda.set_stream(self._streams[queue])
            self._streams[queue].query()

    def submitting(self) -> AbstractContextManager[object]:
        """Copies of a step's numbers are made within, on whichever thread, in an order with the
        operations that read them: whatever stream, or device, the caller had made current.
        """
        return torch.cuda.stream(self._streams[Queue.ACCEL])

    def wait(self, queue: Queue, on: Queue, value: int) -> bool:
        """Order `queue` after `on` has reached `value`; blocks only until it has been launched."""
        if self._finished[on].reached(value):
            return True
        if on not in self._streams:
            return self._finished[on].wait(value, _LIVENESS_CHECK_S)
        if not self._launched[on].wait(value, _LIVENESS_CHECK_S):
            return False
        event = self._event_of(on, value)
        if event is None:  # it has completed meanwhile
            return True
        if queue in self._streams:
            self._streams[queue].wait_event(event)
        else:
            event.synchronize()
        return True

    def _event_of(self, on: Queue, value: int) -> torch.cuda.Event | None:
        """The first that is reached no sooner than a launched `value`; None: all have been."""
        with self._lock:
            events = self._events[on]
            event = events.get(value)
            if event is not None:
                return event
            return next((event for number, event in events.items() if number > value), None)

    def stand_behind_cpu(self, queue: Queue, value: int) -> bool:
        """See `runtime.stream_waits.ValueWaits`; called by the queue's thread."""
        assert self._counters is not None, "opened with waits"
        with self._lock:
            if self._released:
                return False
            self._counters.wait(self._streams[queue].cuda_stream, Queue.CPU, value)
            self._standing[queue] = self._awaited = value
        return True

    def release(self) -> None:
        """See `runtime.stream_waits.ValueWaits`."""
        with self._lock:
            self._released = True
            cpu, awaited = self._finished[Queue.CPU], self._awaited
            if awaited is not None and not cpu.reached(awaited):
                with suppress(ValueError):  # it has come further meanwhile
                    cpu.set(awaited)

    @property
    def launches(self) -> bool:
        """What is run on a stream is only launched."""
        return True

    def on(self, queue: Queue) -> AbstractContextManager[object]:
        """Within, its stream is the current one."""
        return torch.cuda.stream(self._streams[queue])

    def launched(self, queue: Queue, value: int) -> bool:
        """Wait until number `value` of a queue has been launched, for a second at most."""
        return queue not in self._streams or self._launched[queue].wait(value, _LIVENESS_CHECK_S)

    @property
    def raised(self) -> frozenset[Queue]:
        """Queues whose streams tell of ends in host memory by themselves."""
        return self._raised_by_streams

    def mark(self, queue: Queue, begun_s: float) -> None:
        """A part of what `done` will tell of has been launched."""
        event = torch.cuda.Event(enable_timing=True, blocking=True)
        event.record(self._streams[queue])
        self._marks[queue].append((begun_s, event))

    def done(
        self, queue: Queue, value: int, running: RunningT, begun_s: float, *, later: bool = False
    ) -> None:
        """Record the end on its stream, or raise the CPU queue's timeline at once.

        Each part's end is an event of its own, since steps are priced by when parts end; whoever
        waits for the last one can do so from now on. One thread wakes up for those that may be told
        later.
        """
        if queue not in self._streams:
            end_s = time.perf_counter()
            self._finished[queue].set(value)
            self._completed([(running, ((begun_s, end_s),))])
            return
        # Who waits for an event uses up a core, which the CPU's part of the work needs, unless the
        # event is a blocking one; then waking up takes some ten microseconds longer. What comes
        # down is what the CPU waits for, layer by layer, unless the stream itself tells it.
        by_stream = queue in self._raised_by_streams
        event = torch.cuda.Event(enable_timing=True, blocking=queue is not Queue.D2H or by_stream)
        if self._counters is not None and by_stream:
            self._counters.write(self._streams[queue].cuda_stream, queue, value)
        event.record(self._streams[queue])
        marks, self._marks[queue] = [*self._marks[queue], (begun_s, event)], []
        stands = queue in self._standing
        with self._lock:
            self._events[queue][value] = event
            if stands:
                self._stands[queue, value] = self._standing.pop(queue)
        self._held[queue].append(_Launched(value, running, marks))
        if stands or not later:  # nobody else lets a stream go on that waits
            self._tell(queue)
        self._launched[queue].set(value)  # another thread may launch what follows

    def _tell(self, queue: Queue) -> None:
        """Have the ends reported of what has been launched."""
        together, self._held[queue] = self._held[queue], []
        self._reapers[queue].put(together)

    def _reap(self, queue: Queue) -> None:
        torch.cuda.set_device(self._device)
        while (together := self._reapers[queue].get()) is not None:
            last = together[-1]
            try:
                self._await_cpu(queue, last.value)
                last.event.synchronize()  # the others' have been reached before
                if queue not in self._raised_by_streams:
                    self._finished[queue].set(last.value)
                ended = [(each.running, self._spans_of(each)) for each in together]
            except Exception as error:  # noqa: BLE001 - a device error is the engine's end
                self._broken = True
                self._failed(together[0].running, error)
                continue
            with self._lock:
                for each in together:
                    del self._events[queue][each.value]
            self._completed(ended)

    def _spans_of(self, launched: _Launched[RunningT]) -> Spans:
        return [(begun_s, self._clock.moment_s(event)) for begun_s, event in launched.marks]

    def _await_cpu(self, queue: Queue, value: int) -> None:
        """A stream that waits is let go on if the CPU does not come in time.

        Raises:
            RuntimeError: it did not.
        """
        with self._lock:
            awaited = self._stands.pop((queue, value), None)
        if awaited is None or self._finished[Queue.CPU].wait(awaited, LONGEST_STAND_S):
            return
        self.release()
        raise RuntimeError(
            f"a stream has waited for the CPU's part of a layer for {LONGEST_STAND_S:g} s"
        )

    def close(self) -> None:
        """Wait for all streams, then end the reporting threads."""
        for queue, inbox in self._reapers.items():
            if self._held[queue]:  # what was to come behind them has failed
                self._tell(queue)
            inbox.put(None)
        for thread in self._threads:
            thread.join()
        if not self._broken:
            torch.cuda.synchronize(self._device)
