"""Moments of a device's events on the host's clock, though the device's own clock drifts."""

from dataclasses import dataclass
from typing import cast

import pytest
import torch

from tandem.devices.cuda import clock
from tandem.devices.cuda.clock import EventClock

DRIFT = 1e-3  # of the device's clock, which is fast


class Time:
    """The host's clock, and events of a device that keeps another."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.anchors = 0

    def perf_counter(self) -> float:
        return self.now_s


@dataclass(eq=False)
class Event:
    """Reached when it is recorded; its completion is seen a little later."""

    time: Time
    reached_s: float = 0.0

    def record(self, stream: object) -> None:
        self.reached_s = self.time.now_s

    def synchronize(self) -> None:
        self.time.anchors += 1
        self.time.now_s += 1e-5

    def elapsed_time(self, end: "Event") -> float:
        return (end.reached_s - self.reached_s) * (1 + DRIFT) * 1e3


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(clock, "time", made)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: "idle")

    def event(*, enable_timing: bool) -> Event:
        assert enable_timing
        return Event(made)

    monkeypatch.setattr(torch.cuda, "Event", event)
    return made


def error_s(events: EventClock, event: Event) -> float:
    return events.moment_s(cast("torch.cuda.Event", event)) - event.reached_s


def test_moments_are_late_by_the_wait_for_the_anchor(time: Time) -> None:
    events = EventClock(torch.device("cpu"))
    event = Event(time)
    event.record(None)
    assert error_s(events, event) == pytest.approx(1e-5, abs=1e-6)
    assert time.anchors == 1


def test_the_anchor_is_renewed_so_that_drift_does_not_grow(time: Time) -> None:
    events = EventClock(torch.device("cpu"))
    time.now_s += 0.9
    event = Event(time)
    event.record(None)
    assert error_s(events, event) == pytest.approx(0.9 * DRIFT, rel=0.05)
    time.now_s += 3600
    event.record(None)
    assert error_s(events, event) == pytest.approx(1e-5, abs=1e-6)
    assert time.anchors == 2
    time.now_s += 0.5
    event.record(None)
    assert error_s(events, event) == pytest.approx(0.5 * DRIFT, rel=0.05)
    assert time.anchors == 2


def test_an_event_before_a_new_anchor_has_its_moment_too(time: Time) -> None:
    events = EventClock(torch.device("cpu"))
    event = Event(time)
    event.record(None)
    time.now_s += 2.0
    assert error_s(events, event) == pytest.approx(1e-5 - 2.0 * DRIFT, abs=1e-5)
