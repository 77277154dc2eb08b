"""A round trip between the accelerator's queue and the CPU's, by the engine's own driver."""

import time
from collections.abc import Callable

import torch

from tandem.devices.cuda import CudaDriver
from tandem.plan.program import Queue
from tandem.runtime.timelines import make_timelines

_WARM_UP = 10


class HostQueues:
    """Queues that end what they are given at once, in a device's place."""

    def __init__(self) -> None:
        self._timelines = make_timelines()

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


def round_trips_s(device: torch.device, count: int) -> list[float]:
    """Seconds of each: a kernel is launched; the CPU queue waits for its end, and signals; a copy
    to the device waits for the signal; the CPU queue waits for its end.

    Raises:
        RuntimeError: the device reported an error.
    """
    failures: list[BaseException] = []
    driver: Driver = HostQueues()
    if device.type == "cuda":
        timelines = make_timelines()
        driver = CudaDriver[int](
            device, lambda *_: None, lambda _, error: failures.append(error), timelines
        )
    here = torch.zeros(1024, device="cpu", pin_memory=device.type == "cuda")
    there = torch.zeros(1024, device=device)
    try:
        trips = [_trip(driver, here, there, value, failures) for value in range(1, count + 1)]
    finally:
        driver.close()
        driver.enter(Queue.ACCEL)  # what follows on this thread is not to be on another's stream
    return trips[min(_WARM_UP, count - 1) :]


def _trip(
    driver: Driver,
    here: torch.Tensor,
    there: torch.Tensor,
    value: int,
    failures: list[BaseException],
) -> float:
    def until(waits: Callable[[], bool]) -> None:
        while not waits():
            if failures:
                raise RuntimeError(f"the device reported: {failures[0]}")

    begin = time.perf_counter()
    driver.enter(Queue.ACCEL)
    there.add_(1)
    driver.done(Queue.ACCEL, value, value, begin)
    until(lambda: driver.wait(Queue.CPU, Queue.ACCEL, value))
    driver.done(Queue.CPU, value, value, begin)
    driver.enter(Queue.H2D)
    until(lambda: driver.wait(Queue.H2D, Queue.CPU, value))
    there.copy_(here, non_blocking=True)
    driver.done(Queue.H2D, value, value, begin)
    until(lambda: driver.wait(Queue.CPU, Queue.H2D, value))
    return time.perf_counter() - begin
