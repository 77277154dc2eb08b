"""CUDA: streams as queues, events as their timelines. The only place that knows `torch.cuda`."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch

from tandem.devices.memory_nodes import memory_nodes, preferring
from tandem.devices.signal import HostSignal, Signal
from tandem.plan.program import Queue
from tandem.spec.errors import ConfigError
from tandem.spec.units import format_size

if TYPE_CHECKING:
    from tandem.devices.stream_counters import StreamCounters

_LIVENESS_CHECK_S = 1.0
_ANCHOR_LASTS_S = 1.0
RunningT = TypeVar("RunningT")
_STREAMS = (Queue.ACCEL, Queue.H2D, Queue.D2H, Queue.WEIGHTS)


def cuda_available() -> bool:
    """True if torch sees a CUDA device."""
    return torch.cuda.is_available()


def open_cuda(index: int) -> torch.device:
    """The CUDA device of that number.

    Raises:
        ConfigError: there is none.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if index >= count:
        raise ConfigError(
            f"there is no CUDA device {index} ({count} found); use --accelerator none, or emulated",
            param="accelerator",
        )
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    return device


def free_bytes(device: torch.device) -> int:
    """Memory that the driver would still give out."""
    return torch.cuda.mem_get_info(device)[0]


def total_bytes(device: torch.device) -> int:
    """The device's memory."""
    return torch.cuda.mem_get_info(device)[1]


def multiprocessors(device: torch.device) -> int:
    """Streaming multiprocessors of the device."""
    return torch.cuda.get_device_properties(device).multi_processor_count


def compute_capability(device: torch.device) -> tuple[int, int]:
    """Major and minor number of what the device can do."""
    return torch.cuda.get_device_capability(device)


def device_name(device: torch.device) -> str:
    """What the driver calls the device."""
    return torch.cuda.get_device_name(device)


def start_peak(device: torch.device) -> int:
    """Forget the allocator's peak; returns the bytes allocated now."""
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def end_peak(device: torch.device) -> int:
    """Most bytes allocated since `start_peak`; unused memory goes back to the driver."""
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device)
    torch.cuda.empty_cache()
    return peak


def give_back_memory() -> None:
    """What the allocator keeps but nobody uses goes back to the driver; without CUDA nothing."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def pin(tensor: torch.Tensor) -> Callable[[], None]:
    """Lock a contiguous host tensor's pages and make them known to the device; the exact bytes.

    Torch's own pinned allocations are rounded up to a power of two: too much for a large pool.

    Returns: undoes it; to be called when no copy is under way, before the memory is freed.

    Raises:
        ConfigError: the driver refuses.
    """
    runtime: Any = torch.cuda.cudart()
    address, size = tensor.data_ptr(), tensor.nbytes
    error = runtime.cudaHostRegister(address, size, 0)
    if int(error) != 0:
        raise ConfigError(
            f"the driver cannot pin {format_size(size)} of host memory ({error}); "
            "lower --cpu-memory, or raise the limit on locked memory (ulimit -l)",
            param="cpu_memory",
        )

    def release() -> None:
        # after a device error, which was reported where it struck, every call fails: nothing to add
        runtime.cudaHostUnregister(address)

    return release


def device_node(device: torch.device) -> int | None:
    """The NUMA node that a device hangs on; None if that is not known, or the host has but one."""
    from tandem.devices.accelerator_node import cuda_node

    return cuda_node(device.index or 0) if len(memory_nodes()) > 1 else None


def pinned_bytes(size_bytes: int, node: int | None) -> torch.Tensor:
    """New pinned memory: uint8 [size], on that node if torch allocates it anew. It rounds it up to
    a power of two, keeps it when it is freed, and gives it out again when no copy from it is under
    way.
    """
    with preferring(node):
        return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)


def as_seen_by(device: torch.device, pinned: torch.Tensor) -> torch.Tensor:
    """Contiguous host memory that has been pinned, as a tensor of the device: the same bytes, which
    kernels read over the link, row by row if they gather rows.

    With unified addressing, which all devices that torch supports have, registered memory has the
    same address on both sides (CUDA C++ Programming Guide, "Mapped Memory"). The host's tensor must
    outlive what is returned, and stay pinned.
    """
    return _alias(device, pinned)


def stream_handle(device: torch.device) -> int:
    """The driver's name of the current stream; 0: the legacy default stream."""
    return torch.cuda.current_stream(device).cuda_stream


def _alias(device: torch.device, tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a contiguous tensor, as a tensor of the device that does not own them."""
    view = _DeviceBytes((tensor.nbytes,), tensor.data_ptr())
    return torch.as_tensor(view, device=device).view(tensor.dtype).view(tensor.shape)


class _DeviceBytes:
    """Memory that a device can read, in the form that torch takes without copying."""

    def __init__(self, shape: tuple[int, ...], address: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": "|u1", "data": (address, False), "version": 3,
        }  # fmt: skip


class CudaGraphs:
    """Records work as CUDA graphs, all in one pool of memory; see `runtime.graph_maker.GraphMaker`.

    A graph's memory is not given to tensors of others, but to the next graph's: so a result is an
    alias, which keeps none of it from that. Launches go to whichever stream is current.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
        self._free_bytes = free_bytes(device)

    def record(self, work: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        """See `GraphMaker`.

        Raises:
            RuntimeError: torch or the driver cannot capture it.
        """
        torch.cuda.synchronize(self._device)
        with torch.cuda.stream(self._stream):
            work()  # libraries keep a workspace for each stream: not in the pool
        torch.cuda.synchronize(self._device)
        graph = torch.cuda.CUDAGraph()
        # other threads may allocate meanwhile, as those that report an engine's transfers
        try:
            with torch.cuda.graph(
                graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
            ):
                result = work()
        except RuntimeError:
            self._give_up()
            raise
        return graph.replay, _alias(self._device, result)

    def _give_up(self) -> None:
        """Of a capture that failed, make the allocator forget: until 2.12 torch leaves it waiting
        for the end (pytorch/pytorch#180395), so that emptying its cache is an internal error, and
        memory that other streams have used never comes back.
        """
        with suppress(RuntimeError):  # later ones have ended it already
            torch._C._cuda_endAllocateToPool(self._device.index, self._pool)

    def bring(self, host: torch.Tensor, target: torch.Tensor) -> None:
        """See `GraphMaker`; torch keeps the pinned copy until it has been read."""
        target.copy_(host.pin_memory(), non_blocking=True)

    def taken_bytes(self) -> int:
        """Of the device's free memory, since this object was made: graphs, what is compiled for
        them, and libraries' workspaces.
        """
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        return max(0, self._free_bytes - free_bytes(self._device))


class CudaMemory:
    """The driver's and the allocator's word on one device, from here on.

    What is allocated now counts as fixed: weights, pages, slot table.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._fixed_bytes = start_peak(device)

    @property
    def description(self) -> str:
        """Name, compute capability and memory."""
        properties = torch.cuda.get_device_properties(self._device)
        gib = properties.total_memory / (1 << 30)
        return f"{properties.name} (sm_{properties.major}{properties.minor}, {gib:.1f} GiB)"

    def driver_peak_bytes(self) -> int:
        """What the driver has given out, contexts and other processes included, at the moment when
        this process's allocator held most.
        """
        free, total = torch.cuda.mem_get_info(self._device)
        reserved = torch.cuda.memory_reserved(self._device)
        returned = torch.cuda.max_memory_reserved(self._device) - reserved
        return total - free + max(0, returned)

    def grown_bytes(self) -> int:
        """Most bytes allocated at once beside the fixed ones."""
        return max(0, torch.cuda.max_memory_allocated(self._device) - self._fixed_bytes)


class CudaProbe:
    """What probes need of a device: tensors on it, pinned memory, a second queue, an end."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        properties = torch.cuda.get_device_properties(device)
        self.name, self.memory_bytes = properties.name, properties.total_memory
        self._side = torch.cuda.Stream(device)

    def pinned(self, size_bytes: int) -> torch.Tensor:
        """uint8 [size_bytes] in host memory, locked in place."""
        return pinned_bytes(size_bytes, device_node(self.device))

    def synchronize(self) -> None:
        """Wait until all that was submitted has ended."""
        torch.cuda.synchronize(self.device)

    def aside(self) -> AbstractContextManager[object]:
        """What is submitted within goes to the second queue."""
        return torch.cuda.stream(self._side)


class EventClock:
    """Completed events' moments, in seconds of `time.perf_counter`.

    The driver counts milliseconds between two events in single precision, and the device's clock
    drifts against the host's. So moments are counted from an anchor that is renewed every second:
    an event on an idle stream, whose completion the host waits for. They are late by what that wait
    takes, some ten microseconds. Safe from several threads.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)
        self._lock = threading.Lock()
        self._anchor, self._anchored_s = self._now()

    def moment_s(self, event: torch.cuda.Event) -> float:
        """When the event, which has timing enabled and has completed, was reached."""
        with self._lock:
            if time.perf_counter() - self._anchored_s > _ANCHOR_LASTS_S:
                self._anchor, self._anchored_s = self._now()
            return self._anchored_s + self._anchor.elapsed_time(event) * 1e-3

    def _now(self) -> tuple[torch.cuda.Event, float]:
        event = torch.cuda.Event(enable_timing=True)
        event.record(self._stream)
        event.synchronize()
        return event, time.perf_counter()


def open_stream_counters(device: torch.device, queues: Sequence[Queue]) -> "StreamCounters":
    """Counters that the streams of some queues can raise.

    Raises:
        NoStreamCountersError: not on this device.
    """
    from tandem.devices.stream_counters import StreamCounters

    memory = pinned_bytes(StreamCounters.size_bytes(len(queues)), device_node(device)).zero_()
    stream = torch.cuda.Stream(device)
    return StreamCounters(memory, queues, stream.cuda_stream, stream.synchronize)


class CudaDriver(Generic[RunningT]):
    """Launches on one stream per queue; the CPU queue runs on its thread.

    A queue waits for another's stream on the device, through an event; only the CPU queue, and the
    thread that reports completions, block a host thread.

    Args:
        completed: called with every operation that has completed, in order per queue; when the host
            began to launch it, and when it ended, in seconds of `time.perf_counter`.
        failed: called when the device reports an error; the operation is the first to hear of it,
            not necessarily its cause.
        finished: timelines to raise; by default its own. The CPU queue's may be raised by others.
        counters: of queues whose streams raise their timelines themselves; those lie there.
    """

    def __init__(
        self,
        device: torch.device,
        completed: Callable[[RunningT, float, float], None],
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
        self._lock = threading.Lock()
        self._clock = EventClock(device)
        self._reapers = {
            queue: SimpleQueue[tuple[int, RunningT, float] | None]() for queue in _STREAMS
        }
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
        """Make the queue's stream current on this thread."""
        torch.cuda.set_device(self._device)
        if queue in self._streams:
            torch.cuda.set_stream(self._streams[queue])

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
        with self._lock:
            event = self._events[on].get(value)
        if event is None:  # it has completed meanwhile
            return True
        if queue in self._streams:
            self._streams[queue].wait_event(event)
        else:
            event.synchronize()
        return True

    def done(self, queue: Queue, value: int, running: RunningT, begun_s: float) -> None:
        """Record the operation's end on its stream, or raise the CPU queue's timeline at once."""
        if queue not in self._streams:
            end_s = time.perf_counter()
            self._finished[queue].set(value)
            self._completed(running, begun_s, end_s)
            return
        # Who waits for an event uses up a core, which the CPU's part of the work needs, unless the
        # event is a blocking one; then waking up takes some ten microseconds longer. What comes
        # down is what the CPU waits for, layer by layer.
        event = torch.cuda.Event(enable_timing=True, blocking=queue is not Queue.D2H)
        if self._counters is not None and queue in self._raised_by_streams:
            self._counters.write(self._streams[queue].cuda_stream, queue, value)
        event.record(self._streams[queue])
        with self._lock:
            self._events[queue][value] = event
        self._launched[queue].set(value)
        self._reapers[queue].put((value, running, begun_s))

    def _reap(self, queue: Queue) -> None:
        torch.cuda.set_device(self._device)
        while (entry := self._reapers[queue].get()) is not None:
            value, running, begun_s = entry
            event = self._events[queue][value]
            try:
                event.synchronize()
                if queue not in self._raised_by_streams:
                    self._finished[queue].set(value)
                end_s = self._clock.moment_s(event)
            except Exception as error:  # noqa: BLE001 - a device error is the engine's end
                self._broken = True
                self._failed(running, error)
                continue
            with self._lock:
                del self._events[queue][value]
            self._completed(running, begun_s, end_s)

    def close(self) -> None:
        """Wait for all streams, then end the reporting threads."""
        for inbox in self._reapers.values():
            inbox.put(None)
        for thread in self._threads:
            thread.join()
        if not self._broken:
            torch.cuda.synchronize(self._device)
