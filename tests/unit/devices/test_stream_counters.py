"""Counters that streams raise: by a driver that does as `cuda.h` says, seen by native threads."""

import ctypes
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from tests.unit.devices.test_cuda_driver import Harness

from tandem.devices import stream_counters
from tandem.devices.signal import HostSignal, Signal, reached
from tandem.devices.stream_counters import NoStreamCountersError, StreamCounters
from tandem.kernels import native
from tandem.plan.program import Queue
from tandem.runtime.timelines import NativeTimeline

_PROTOTYPE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint
)
_C_TYPES = {
    "CUstream": ctypes.c_void_p,  # a pointer to a struct that is not told
    "CUdeviceptr": ctypes.c_uint64,
    "cuuint32_t": ctypes.c_uint32,
    "unsigned int": ctypes.c_uint,
}


class FakeDriver:
    """Writes when the stream gets there, if it ever does."""

    def __init__(self, error: int = 0, *, arrives: bool = True) -> None:
        self.waiting: dict[int, list[Callable[[], None]]] = {}
        self.flags: set[int] = set()
        self._error, self._arrives = error, arrives
        self.cuStreamWriteValue32_v2 = _PROTOTYPE(self._take)

    def _take(self, stream: int | None, address: int, value: int, flags: int) -> int:
        def write() -> None:
            if self._arrives:
                ctypes.c_uint32.from_address(address).value = value

        self.flags.add(flags)
        self.waiting.setdefault(stream or 0, []).append(write)
        return self._error

    def arrive(self, stream: int) -> None:
        """Everything that was given to the stream happens."""
        for write in self.waiting.pop(stream, []):
            write()


class Streams(FakeDriver):
    """Streams that come to what they are given at once, but for waits for what is not there yet.

    Args:
        blind: they never see what the host writes. careless: they wait for nothing.
    """

    def __init__(self, *, blind: bool = False, careless: bool = False) -> None:
        super().__init__()
        self.stands: dict[int, tuple[int, int]] = {}
        self.released_by: list[int] = []
        self._blind, self._careless = blind, careless
        self.cuStreamWaitValue32_v2 = _PROTOTYPE(self._stand)
        self.cuStreamWriteValue32_v2 = _PROTOTYPE(self._write)

    def _stand(self, stream: int | None, address: int, value: int, flags: int) -> int:
        assert flags == 0
        if not self._careless:
            self.stands[stream or 0] = address, value
        return 0

    def _write(self, stream: int | None, address: int, value: int, flags: int) -> int:
        ctypes.c_uint32.from_address(address).value = value
        if self._blind:
            self.stands.clear()
            self.released_by.append(stream or 0)
        return 0

    def is_idle(self, stream: int) -> bool:
        address, value = self.stands.get(stream, (0, 0))
        if not address:
            return True
        held = reached(ctypes.c_uint32.from_address(address).value, value)
        return held and not (self._blind and value == stream_counters._PROBED + 1)


def enable(driver: FakeDriver, is_idle: Callable[[], bool]) -> StreamCounters:
    memory = torch.zeros(StreamCounters.size_bytes(2), dtype=torch.uint8)
    counters = StreamCounters(memory, (Queue.D2H, Queue.CPU), 7, lambda: driver.arrive(7), driver)
    counters.enable_waits(7, is_idle, 8)
    return counters


def test_a_stream_stands_until_the_host_has_raised_a_counter() -> None:
    streams = Streams()
    counters = enable(streams, lambda: streams.is_idle(7))
    timeline = ctypes.c_uint32.from_address(counters.addresses[Queue.CPU])
    counters.wait(9, Queue.CPU, 2)
    assert not streams.is_idle(9)
    timeline.value = 1
    assert not streams.is_idle(9)
    timeline.value = 3
    assert streams.is_idle(9)


def test_where_streams_cannot_wait_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_counters, "_TRIAL_S", 0.01)
    with pytest.raises(NoStreamCountersError, match="the driver has no cuStreamWaitValue32_v2"):
        enable(plain := FakeDriver(), lambda: not plain.waiting)
    careless = Streams(careless=True)
    with pytest.raises(NoStreamCountersError, match="does not wait"):
        enable(careless, lambda: careless.is_idle(7))
    blind = Streams(blind=True)
    with pytest.raises(NoStreamCountersError, match="does not see what the host writes"):
        enable(blind, lambda: blind.is_idle(7))
    assert blind.released_by[-1] == 8  # nothing stands for ever
    assert blind.is_idle(7)


def counters_of(driver: FakeDriver, *queues: Queue) -> StreamCounters:
    memory = torch.zeros(StreamCounters.size_bytes(len(queues)), dtype=torch.uint8)
    return StreamCounters(memory, queues, 7, lambda: driver.arrive(7), driver)


@pytest.mark.parametrize("versioned", [stream_counters._WRITE, stream_counters._WAIT])
def test_arguments_are_those_of_the_driver_s_header(versioned: str) -> None:
    """Triton's wheel brings `cuda.h`."""
    triton = find_spec("triton")
    if triton is None or triton.origin is None:
        pytest.skip("Triton is not installed")
    header = Path(triton.origin).parent / "backends" / "nvidia" / "include" / "cuda.h"
    text = header.read_text(encoding="utf-8")
    name = versioned.removesuffix("_v2")
    assert re.search(rf"#define {name}\s+__CUDA_API_PTSZ\({versioned}\)", text)
    found = re.search(rf"CUresult CUDAAPI {name}\(([^)]*)\);", text)
    assert found is not None
    types = [each.rsplit(" ", 1)[0].strip() for each in found[1].split(",")]
    assert tuple(_C_TYPES[each] for each in types) == stream_counters._ARGUMENTS
    assert re.search(r"typedef unsigned long long CUdeviceptr_v2;", text)
    assert re.search(r"CU_STREAM_WRITE_VALUE_DEFAULT\s*=\s*0x0,", text)
    assert re.search(r"CU_STREAM_WAIT_VALUE_GEQ\s*=\s*0x0,", text)


def test_counters_of_queues_lie_apart() -> None:
    driver = FakeDriver()
    counters = counters_of(driver, Queue.D2H, Queue.H2D)
    assert abs(counters.addresses[Queue.D2H] - counters.addresses[Queue.H2D]) >= 64
    counters.write(9, Queue.D2H, 3)
    driver.arrive(9)
    read = {q: ctypes.c_uint32.from_address(a).value for q, a in counters.addresses.items()}
    assert read == {Queue.D2H: 3, Queue.H2D: 0}
    assert driver.flags == {0}


@pytest.mark.parametrize(
    ("driver", "reason"),
    [
        (object(), "the driver has no cuStreamWriteValue32_v2"),
        (FakeDriver(error=801), "cuStreamWriteValue32_v2 failed with CUDA error 801"),
        (FakeDriver(arrives=False), "did not come to host memory"),
    ],
)
def test_where_they_cannot_be_it_says_why(driver: FakeDriver, reason: str) -> None:
    with pytest.raises(NoStreamCountersError, match=reason):
        counters_of(driver, Queue.D2H)


def test_a_machine_without_the_driver_s_library_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = torch.zeros(StreamCounters.size_bytes(1), dtype=torch.uint8)
    with pytest.raises(NoStreamCountersError, match="no-such-library"):
        StreamCounters(memory, (Queue.D2H,), 7, lambda: None, "no-such-library.so")


def test_native_work_begins_before_any_thread_has_seen_the_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not native.available():
        pytest.skip("the kernels are not compiled")
    from tandem.kernels import _native
    from tandem.kernels.native_pool import NativePool

    driver = FakeDriver()
    counters = counters_of(driver, Queue.D2H)
    timeline = NativeTimeline(counters.addresses[Queue.D2H])
    timelines: dict[Queue, HostSignal] = {queue: Signal() for queue in Queue}
    timelines[Queue.D2H] = timeline
    harness = Harness(monkeypatch, timelines, counters)
    _, down, *_ = harness.streams
    down.immediate = False
    pool = NativePool(1)
    task = _native.nothing(pool.handle)
    task.submit([timeline.point(2)], None)
    harness.driver.done(Queue.D2H, 1, "first", 0.0)
    harness.driver.done(Queue.D2H, 2, "second", 0.0)
    assert not task.done

    driver.arrive(down.cuda_stream)
    assert task.wait(10.0)
    assert harness.reports == []  # the events have not been seen
    assert harness.driver.wait(Queue.CPU, Queue.D2H, 2)
    # an event that is seen later takes nothing back
    for event in down.recorded:
        event.complete()
    harness.await_reports(2)
    assert timeline.reached(2)
    harness.driver.close()


def test_other_queues_are_raised_when_their_events_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = FakeDriver()
    timelines = {queue: Signal() for queue in Queue}
    harness = Harness(monkeypatch, timelines, counters_of(driver, Queue.D2H))
    harness.driver.done(Queue.H2D, 1, "up", 0.0)
    harness.await_reports(1)
    assert timelines[Queue.H2D].reached(1)
    assert not driver.waiting
    harness.driver.close()
