"""Round trips between the accelerator's queues and the CPU's, by the engine's own driver."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from benchmarks.gpu.cases import CaseError

from tandem.devices.cuda.driver import CudaDriver, open_stream_counters
from tandem.devices.stream_counters import NoStreamCountersError
from tandem.plan.program import Queue
from tandem.runtime.timelines import NativeTimeline, Timelines, make_timelines

_WARM_UP = 10


class HostQueues:
    """Queues that end what they are given at once, in a device's place."""

    def __init__(self, timelines: Timelines) -> None:
        self._timelines = timelines

    def enter(self, queue: Queue) -> None:
        """There are no streams."""

    def wait(self, queue: Queue, on: Queue, value: int) -> bool:
        """Until it has come so far."""
        return self._timelines[on].wait(value, 1.0)

    def done(self, queue: Queue, value: int, running: int, begun_s: float) -> None:
        """It has ended."""
        self._timelines[queue].set(value)

    def close(self) -> None:
        """Nothing to free."""


Driver = CudaDriver[int] | HostQueues


class _Trips:
    """A driver, and what it said of errors."""

    def __init__(
        self, device: torch.device, *, has_streams: bool, by_streams: bool, waits: bool
    ) -> None:
        self._failures: list[BaseException] = []
        counters = None
        if by_streams:
            raised = (Queue.D2H, Queue.CPU) if waits else (Queue.D2H,)
            counters = open_stream_counters(device, raised, waits=waits)
        self._waits = waits
        self.timelines = make_timelines(None if counters is None else counters.addresses)
        self.driver: Driver = HostQueues(self.timelines)
        if has_streams:
            self.driver = CudaDriver[int](
                device,
                lambda *_: None,
                lambda _, error: self._failures.append(error),
                self.timelines,
                counters,
            )
        self.here = torch.zeros(1024, device="cpu", pin_memory=device.type == "cuda")
        self.there = torch.zeros(1024, device=device)

    def until(self, waits: Callable[[], bool]) -> None:
        """It holds.

        Raises:
            RuntimeError: the device reported an error.
        """
        while not waits():
            if self._failures:
                raise RuntimeError(f"the device reported: {self._failures[0]}")

    def copy_up(self, value: int, begin: float) -> float:
        """Behind the CPU queue's signal; seconds from `begin` until it is known to have ended."""
        driver = self.driver
        driver.enter(Queue.H2D)
        if self._waits:  # as `StreamWaits`: for a task that has its input
            assert isinstance(driver, CudaDriver)
            self.until(lambda: driver.wait(Queue.CPU, Queue.D2H, value))
            driver.stand_behind_cpu(Queue.H2D, value)
        else:
            self.until(lambda: driver.wait(Queue.H2D, Queue.CPU, value))
        self.there.copy_(self.here, non_blocking=True)
        driver.done(Queue.H2D, value, value, begin)
        self.until(lambda: driver.wait(Queue.CPU, Queue.H2D, value))
        return time.perf_counter() - begin


def round_trips_s(device: torch.device, count: int, *, has_streams: bool) -> list[float]:
    """Seconds of each: a kernel is launched; the CPU queue waits for its end, and signals; a copy
    to the device waits for the signal; the CPU queue waits for its end.

    Args:
        has_streams: it is a CUDA device.

    Raises:
        RuntimeError: the device reported an error.
    """

    def trip(trips: _Trips, value: int) -> float:
        begin, driver = time.perf_counter(), trips.driver
        driver.enter(Queue.ACCEL)
        trips.there.add_(1)
        driver.done(Queue.ACCEL, value, value, begin)
        trips.until(lambda: driver.wait(Queue.CPU, Queue.ACCEL, value))
        driver.done(Queue.CPU, value, value, begin)
        return trips.copy_up(value, begin)

    with _opened(device, has_streams=has_streams) as trips:
        return _all(trips, trip, count)


def pool_round_trips_s(
    device: torch.device, count: int, *, has_streams: bool, by_streams: bool, waits: bool
) -> list[float]:
    """Seconds of each: a copy to the host; a task of the native pool that waits for its end, and
    signals, as attention on the host does; a copy to the device as in `round_trips_s`.

    Args:
        has_streams: it is a CUDA device.
        by_streams: the copy's stream raises what the task waits for; else a thread that has seen
            its event.
        waits: the stream of the copy to the device waits for the task by itself; with `by_streams`.

    Raises:
        CaseError: the driver cannot. RuntimeError: the device reported an error.
    """
    from tandem.kernels import _native
    from tandem.kernels.native_pool import NativePool

    pool = NativePool(1)

    def point(trips: _Trips, queue: Queue, value: int) -> tuple[_native.Signal, int]:
        timeline = trips.timelines[queue]
        assert isinstance(timeline, NativeTimeline)
        return timeline.point(value)

    def trip(trips: _Trips, value: int) -> float:
        begin, driver = time.perf_counter(), trips.driver
        task = _native.nothing(pool.handle)
        task.submit([point(trips, Queue.D2H, value)], point(trips, Queue.CPU, value))
        try:
            driver.enter(Queue.D2H)
            trips.here.copy_(trips.there, non_blocking=True)
            driver.done(Queue.D2H, value, value, begin)
            taken_s = trips.copy_up(value, begin)
        except BaseException:
            task.cancel()  # to be freed it must not wait for what never comes
            raise
        task.wait()
        return taken_s

    with _opened(device, has_streams=has_streams, by_streams=by_streams, waits=waits) as trips:
        return _all(trips, trip, count)


def _all(trips: _Trips, trip: Callable[[_Trips, int], float], count: int) -> list[float]:
    taken_s = [trip(trips, value) for value in range(1, count + 1)]
    return taken_s[min(_WARM_UP, count - 1) :]


@contextmanager
def _opened(
    device: torch.device, *, has_streams: bool, by_streams: bool = False, waits: bool = False
) -> Iterator[_Trips]:
    try:
        trips = _Trips(device, has_streams=has_streams, by_streams=by_streams, waits=waits)
    except NoStreamCountersError as error:
        raise CaseError(str(error)) from error
    try:
        yield trips
    finally:
        trips.driver.close()
        trips.driver.enter(Queue.ACCEL)  # what follows on this thread is not to be on another's
