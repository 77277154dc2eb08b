"""How accelerator and CPU work beside each other, in Prometheus' format."""

from collections.abc import Mapping
from math import nan

from prometheus_client import CollectorRegistry, Counter, Gauge

from tandem.runtime.measures import OverlapTotals

_COUNTERS = {
    "step_s": ("tandem:step_seconds", "Time in which there was work."),
    "accel_busy_s": ("tandem:accelerator_busy_seconds", "Of it, while the accelerator worked."),
    "cpu_attention_s": ("tandem:cpu_attention_seconds", "Attention on the CPU."),
    "hidden_s": (
        "tandem:cpu_attention_hidden_seconds",
        "Attention on the CPU while the accelerator worked.",
    ),
}


class OverlapMetrics:
    """Counters since start, and shares of the latest steps; nan where they have no meaning."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counters = {
            name: Counter(*texts, registry=registry) for name, texts in _COUNTERS.items()
        }
        self._seen = OverlapTotals()
        self._idle = Gauge(
            "tandem:accelerator_idle_share",
            "Of the latest steps' time, without the accelerator's work.",
            registry=registry,
        )
        self._hidden = Gauge(
            "tandem:cpu_attention_hidden_share",
            "Of the latest steps' attention on the CPU, beside the accelerator's work.",
            registry=registry,
        )

    def update(self, overlap: Mapping[str, float], recent: Mapping[str, float]) -> None:
        """Take over what the engine tells: `OverlapTotals` as plain values."""
        totals, latest = OverlapTotals(**overlap), OverlapTotals(**recent)  # pyright: ignore[reportArgumentType]
        for name, counter in self._counters.items():
            counter.inc(getattr(totals, name) - getattr(self._seen, name))
        self._seen = totals
        idle, hidden = latest.accel_idle_share, latest.hidden_share
        self._idle.set(nan if idle is None else idle)
        self._hidden.set(nan if hidden is None else hidden)
