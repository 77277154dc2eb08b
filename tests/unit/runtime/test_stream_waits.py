"""Streams wait for the CPU only when that is sure to come, and where no thread reads for them."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tandem.kernels import native

if not native.available():
    pytest.skip("the kernels are not compiled", allow_module_level=True)

from tandem.plan.program import OpKind, Part, Queue
from tandem.runtime.running import Running
from tandem.runtime.stream_waits import StreamWaits


class Tasks:
    """A queue of the CPU's work, as far as it was told."""

    def __init__(self, inputs: dict[int, list[tuple[Queue, int]] | None]) -> None:
        self._inputs = inputs

    def await_announced(self, value: int, timeout_s: float) -> bool:
        return value in self._inputs

    def inputs_of(self, value: int) -> list[tuple[Queue, int]] | None:
        return self._inputs[value]


class Device:
    """Notes what it is asked, in order."""

    def __init__(self, *reached: tuple[Queue, int]) -> None:
        self.reached = set(reached)
        self.asked: list[object] = []

    def wait(self, queue: Queue, on: Queue, value: int) -> bool:
        assert queue is Queue.CPU  # a thread waits, not a stream
        self.asked.append((on, value))
        return (on, value) in self.reached

    def stand_behind_cpu(self, queue: Queue, value: int) -> bool:
        self.asked.append((queue, "stands", value))
        return True

    def release(self) -> None:
        self.asked.append("release")


def waits(device: Device, inputs: dict[int, list[tuple[Queue, int]] | None]) -> StreamWaits:
    return StreamWaits(device, cast("Any", Tasks(inputs)))


NEEDS: list[tuple[Queue, int]] = [(Queue.D2H, 3), (Queue.CPU, 6)]


def test_a_stream_stands_once_the_task_has_all_that_it_needs() -> None:
    device = Device(*NEEDS)
    assert waits(device, {7: NEEDS}).order(Queue.H2D, 7, 0.0) is True
    assert device.asked == [*NEEDS, (Queue.H2D, "stands", 7)]


@pytest.mark.parametrize("missing", NEEDS)
def test_it_does_not_before(missing: tuple[Queue, int]) -> None:
    device = Device(*(need for need in NEEDS if need != missing))
    assert waits(device, {7: NEEDS}).order(Queue.H2D, 7, 0.0) is False
    assert (Queue.H2D, "stands", 7) not in device.asked


def test_what_nobody_has_submitted_is_not_stood_for() -> None:
    device = Device(*NEEDS)
    assert waits(device, {}).order(Queue.H2D, 7, 0.0) is False
    assert device.asked == []


def test_a_thread_waits_for_what_python_executes_or_has_been_taken_back() -> None:
    device = Device(*NEEDS)
    assert waits(device, {7: None}).order(Queue.H2D, 7, 0.0) is None
    assert device.asked == []


def running(*, pinned: bool = True, joins: int | None = None, **changes: object) -> Running:
    fields = {"kind": OpKind.COPY, "queue": Queue.H2D, "part": Part.PARTIAL, "lanes": (0,)}
    op = SimpleNamespace(**{**fields, "joins": joins, **changes})
    lane = SimpleNamespace(staging=SimpleNamespace(pinned=pinned))
    return cast("Running", SimpleNamespace(op=op, context=SimpleNamespace(lanes=[lane])))


@pytest.mark.parametrize(
    ("given", "takes"),
    [
        (running(), True),
        (running(pinned=False), False),  # read by the thread that launches the copy
        (running(joins=0), False),  # its bounded wait is the host's
        (running(part=Part.QKV), False),
        (running(kind=OpKind.MERGE), False),
        (running(queue=Queue.ACCEL), False),
    ],
)
def test_which_operations_may(given: Running, takes: bool) -> None:
    assert StreamWaits.takes(given) == takes
