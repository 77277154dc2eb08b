"""The CUDA driver's ordering, with streams and events that stand for the real ones."""

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from tandem.devices.cuda import clock, driver
from tandem.devices.cuda.device import open_cuda
from tandem.devices.cuda.driver import CudaDriver, Spans
from tandem.devices.signal import HostSignal
from tandem.devices.stream_counters import StreamCounters
from tandem.plan.program import Queue
from tandem.spec.errors import ConfigError


@dataclass(eq=False)
class FakeEvent:
    """Completes when the test says so."""

    enable_timing: bool = False
    blocking: bool = False
    completed: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None
    reached_s: float = 0.0

    def record(self, stream: "FakeStream") -> None:
        stream.recorded.append(self)
        if stream.immediate:
            self.complete()

    def complete(self) -> None:
        self.reached_s = time.perf_counter()
        self.completed.set()

    def elapsed_time(self, end: "FakeEvent") -> float:
        assert self.enable_timing
        assert end.enable_timing
        return (end.reached_s - self.reached_s) * 1e3

    def synchronize(self) -> None:
        assert self.completed.wait(10)
        if self.error is not None:
            raise self.error


@dataclass(eq=False)
class FakeStream:
    """Remembers the events recorded on it and those it was told to wait for."""

    immediate: bool = True
    cuda_stream: int = 0  # the driver's handle
    recorded: list[FakeEvent] = field(default_factory=list)
    awaited: list[FakeEvent] = field(default_factory=list)
    contexts: set[int] = field(default_factory=set)  # threads that have the device's
    current: set[int] = field(default_factory=set)  # threads of which it is the stream

    def query(self) -> bool:
        self.contexts.add(threading.get_ident())
        return True

    def wait_event(self, event: FakeEvent) -> None:
        self.awaited.append(event)


class Current:
    """Makes a stream the current one until it is closed."""

    def __init__(self, current: list[object], stream: object) -> None:
        self._current = current
        current.append(stream)

    def close(self) -> None:
        self._current.pop()


class Harness:
    """A driver over fake streams, and what it has reported."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        finished: Mapping[Queue, HostSignal] | None = None,
        counters: StreamCounters | None = None,
    ) -> None:
        self.accel = FakeStream()
        self.streams: list[FakeStream] = []
        monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
        monkeypatch.setattr(torch.cuda, "Stream", self._make_stream)
        monkeypatch.setattr(torch.cuda, "default_stream", lambda device: self.accel)
        monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
        monkeypatch.setattr(torch.cuda, "set_stream", self._set_stream)
        self.reports: list[str] = []
        self.ends_s: list[float] = []
        self.spans: list[Spans] = []
        self.reported = threading.Condition()
        self.driver: CudaDriver[str] = CudaDriver(
            torch.device("cpu"), self._ended, self._fail, finished, counters
        )

    def _make_stream(self, device: torch.device) -> FakeStream:
        self.streams.append(FakeStream(cuda_stream=len(self.streams) + 1))
        return self.streams[-1]

    @staticmethod
    def _set_stream(stream: FakeStream) -> None:
        stream.current.add(threading.get_ident())

    def _fail(self, name: str, error: BaseException) -> None:
        self._report(f"{name}: {error}")

    def _ended(self, ended: Sequence[tuple[str, Spans]]) -> None:
        for name, spans in ended:
            self.spans.append(spans)
            self._report(name, spans[-1][1])

    def _report(self, name: str, end_s: float = 0.0) -> None:
        with self.reported:
            self.reports.append(name)
            self.ends_s.append(end_s)
            self.reported.notify_all()

    def await_reports(self, count: int) -> None:
        with self.reported:
            assert self.reported.wait_for(lambda: len(self.reports) >= count, timeout=10)


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Harness:
    return Harness(monkeypatch)


def test_a_stream_waits_for_another_without_blocking_the_host(harness: Harness) -> None:
    harness.accel.immediate = False
    harness.driver.done(Queue.ACCEL, 1, "pre", 0.0)
    assert harness.driver.wait(Queue.D2H, Queue.ACCEL, 1)
    assert harness.streams[1].awaited == harness.accel.recorded
    assert harness.reports == []
    harness.accel.recorded[0].complete()
    harness.await_reports(1)
    harness.driver.close()


def test_only_what_the_cpu_waits_for_keeps_a_core_busy(harness: Harness) -> None:
    for value, queue in enumerate((Queue.ACCEL, Queue.H2D, Queue.D2H, Queue.WEIGHTS), start=1):
        harness.driver.done(queue, value, str(queue), 0.0)
    up, down, weights, _ = (stream.recorded[:1] for stream in harness.streams)
    assert [event.blocking for event in (*harness.accel.recorded, *up, *weights)] == [True] * 3
    assert [event.blocking for event in down] == [False]
    harness.await_reports(4)
    harness.driver.close()


def test_nobody_uses_up_a_core_for_what_a_stream_tells_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[tuple[int, Queue, int]] = []
    counters = SimpleNamespace(
        addresses={Queue.D2H: 64}, write=lambda *arguments: written.append(arguments)
    )
    harness = Harness(monkeypatch, counters=cast("StreamCounters", counters))
    harness.driver.done(Queue.D2H, 1, "down", 0.0)
    assert written == [(harness.streams[1].cuda_stream, Queue.D2H, 1)]
    assert [event.blocking for event in harness.streams[1].recorded[:1]] == [True]
    harness.await_reports(1)
    harness.driver.close()


def standing(monkeypatch: pytest.MonkeyPatch) -> tuple[Harness, list[tuple[int, Queue, int]]]:
    """A driver whose streams can wait, and the waits that it was given."""
    waits: list[tuple[int, Queue, int]] = []
    counters = SimpleNamespace(
        addresses={Queue.D2H: 64, Queue.CPU: 128}, wait=lambda *given: waits.append(given)
    )
    return Harness(monkeypatch, counters=cast("StreamCounters", counters)), waits


def test_a_stream_waits_for_the_cpu_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    harness, waits = standing(monkeypatch)
    assert harness.driver.stand_behind_cpu(Queue.H2D, 4)
    assert waits == [(harness.streams[0].cuda_stream, Queue.CPU, 4)]
    harness.driver.done(Queue.H2D, 1, "up", 0.0)
    assert harness.reports == []  # nothing is over before the CPU's part
    harness.driver.done(Queue.CPU, 4, "attend", 0.0)
    harness.await_reports(2)
    assert harness.reports == ["attend", "up"]
    harness.driver.close()


def test_a_stream_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "LONGEST_STAND_S", 0.01)
    harness, _ = standing(monkeypatch)
    assert harness.driver.stand_behind_cpu(Queue.H2D, 4)
    harness.driver.done(Queue.H2D, 1, "up", 0.0)
    harness.await_reports(1)
    assert harness.reports == ["up: a stream has waited for the CPU's part of a layer for 0.01 s"]
    assert harness.driver.wait(Queue.CPU, Queue.CPU, 4)  # the stream has been let go on
    assert not harness.driver.stand_behind_cpu(Queue.H2D, 5)
    harness.driver.close()


def test_released_streams_wait_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    harness, waits = standing(monkeypatch)
    harness.driver.release()
    assert not harness.driver.stand_behind_cpu(Queue.H2D, 1)
    assert waits == []
    assert not harness.driver._finished[Queue.CPU].reached(1)
    harness.driver.close()


def test_a_queues_thread_has_the_devices_context_before_it_launches(harness: Harness) -> None:
    """The driver's own calls, such as those that raise counters, are refused without one."""

    def enter() -> None:
        for queue in Queue:
            harness.driver.enter(queue)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    for stream in (harness.accel, *harness.streams[:3]):
        assert stream.current == stream.contexts == {thread.ident}
    harness.driver.close()


def test_the_cpu_queue_blocks_until_the_stream_has_completed(harness: Harness) -> None:
    harness.accel.immediate = False
    harness.driver.done(Queue.ACCEL, 1, "pre", 0.0)
    passed = threading.Event()

    def wait() -> None:
        assert harness.driver.wait(Queue.CPU, Queue.ACCEL, 1)
        passed.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert not passed.wait(0.05)
    harness.accel.recorded[0].complete()
    assert passed.wait(10)
    thread.join()
    harness.await_reports(1)
    harness.driver.close()


def test_streams_wait_for_the_cpu_queue_on_the_host(harness: Harness) -> None:
    assert not harness.driver.wait(Queue.H2D, Queue.CPU, 1)
    harness.driver.done(Queue.CPU, 1, "attend", 0.0)
    assert harness.driver.wait(Queue.H2D, Queue.CPU, 1)
    assert harness.reports == ["attend"]
    harness.driver.close()


def test_programs_are_submitted_in_the_order_of_what_computes(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    current: list[object] = []
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: closing(Current(current, stream)))
    with harness.driver.submitting():
        assert current == [harness.accel]
    assert current == []
    harness.driver.close()


def test_completions_are_reported_in_order_of_each_queue(harness: Harness) -> None:
    for value in range(1, 6):
        harness.driver.done(Queue.ACCEL, value, f"op {value}", 0.0)
    harness.await_reports(5)
    assert harness.reports == [f"op {value}" for value in range(1, 6)]
    assert harness.driver.wait(Queue.D2H, Queue.ACCEL, 3)
    harness.driver.close()


def test_ends_that_may_wait_are_told_with_the_next_each_with_its_own_moment(
    harness: Harness,
) -> None:
    harness.accel.immediate = False
    for value, later in enumerate((True, True, False, True), 1):
        harness.driver.done(Queue.ACCEL, value, f"op {value}", 0.0, later=later)
    first, second, third, _ = harness.accel.recorded
    for event in (first, second, third):
        assert not harness.driver._finished[Queue.ACCEL].reached(1)
        event.complete()
    harness.await_reports(3)
    assert harness.reports == ["op 1", "op 2", "op 3"]
    assert harness.driver._finished[Queue.ACCEL].reached(3)
    assert harness.ends_s == sorted(harness.ends_s)
    assert len(set(harness.ends_s)) == 3
    # whoever waits for the last one can, though nobody has been told of it
    assert harness.driver.wait(Queue.D2H, Queue.ACCEL, 4)
    assert harness.streams[1].awaited == [harness.accel.recorded[-1]]
    harness.accel.recorded[-1].complete()
    harness.driver.close()
    assert harness.reports[3:] == ["op 4"], "nothing behind it came"


def test_parts_have_times_of_their_own_and_one_end(harness: Harness) -> None:
    harness.driver.mark(Queue.ACCEL, 1.0)
    harness.driver.mark(Queue.ACCEL, 2.0)
    harness.driver.done(Queue.ACCEL, 7, "run", 3.0)
    harness.await_reports(1)
    ((first, second, third),) = harness.spans
    assert [first[0], second[0], third[0]] == [1.0, 2.0, 3.0]
    assert first[1] < second[1] < third[1]
    harness.driver.done(Queue.ACCEL, 8, "next", 4.0)
    harness.await_reports(2)
    assert [begun_s for begun_s, _ in harness.spans[1]] == [4.0]
    harness.driver.close()


def test_who_waits_for_an_inner_operation_waits_for_the_end_of_its_run(harness: Harness) -> None:
    harness.accel.immediate = False
    harness.driver.done(Queue.ACCEL, 3, "run", 0.0)
    harness.driver.done(Queue.ACCEL, 5, "next", 0.0)
    assert harness.driver.wait(Queue.D2H, Queue.ACCEL, 2)
    assert harness.streams[1].awaited == harness.accel.recorded[:1]
    for event in harness.accel.recorded:
        event.complete()
    harness.driver.close()


def test_a_stream_that_stands_is_watched_though_its_end_may_be_told_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "LONGEST_STAND_S", 0.01)
    harness, _ = standing(monkeypatch)
    assert harness.driver.stand_behind_cpu(Queue.H2D, 4)
    harness.driver.done(Queue.H2D, 1, "up", 0.0, later=True)
    harness.await_reports(1)
    assert harness.driver.wait(Queue.CPU, Queue.CPU, 4)
    harness.driver.close()


def test_ends_are_on_the_hosts_clock_even_if_the_anchor_is_renewed_meanwhile(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "_ANCHOR_LASTS_S", 0.0)
    for value in range(1, 6):
        harness.driver.done(Queue.ACCEL, value, f"op {value}", 0.0)
    harness.await_reports(5)
    reached = [event.reached_s for event in harness.accel.recorded]
    assert harness.ends_s == pytest.approx(reached, abs=5e-3)
    harness.driver.close()


def test_a_device_error_is_reported_and_does_not_hang_the_close(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def synchronize(device: torch.device) -> None:
        raise RuntimeError("illegal access, again")

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    harness.accel.immediate = False
    harness.driver.done(Queue.ACCEL, 1, "pre", 0.0)
    harness.accel.recorded[0].error = RuntimeError("illegal access")
    harness.accel.recorded[0].complete()
    harness.await_reports(1)
    assert harness.reports == ["pre: illegal access"]
    harness.driver.close()


def test_a_missing_device_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="no CUDA device 1"):
        open_cuda(1)
