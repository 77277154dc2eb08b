"""When CUDA events were reached, by the host's clock."""

import threading
import time

import torch

_ANCHOR_LASTS_S = 1.0


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
