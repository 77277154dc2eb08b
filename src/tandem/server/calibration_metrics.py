"""How far predicted and measured times of steps are apart, in Prometheus' format."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tandem.cost.prediction_ratios import RATIO_BOUNDS

_TERMS = ("linear", "attention", "host", "copies_in", "copies_out")


class CalibrationMetrics(Collector):
    """What an engine with `--calibrate` has counted itself, as it stands."""

    def __init__(self, registry: CollectorRegistry, told: Mapping[str, Any]) -> None:
        self.told = told
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """The factors now, and steps since start by measured over predicted time."""
        factors = GaugeMetricFamily(
            "tandem:calibration_factor",
            "By how much predicted times are multiplied: the accelerator's stages, its attention, "
            "the CPU's, and copies of KV blocks to the accelerator and to the host.",
            labels=["term"],
        )
        for term in _TERMS:
            factors.add_metric([term], self.told[term])
        yield factors
        counts: Sequence[int] = self.told["counts"]
        bounds = [*map(str, RATIO_BOUNDS), "+Inf"]
        yield HistogramMetricFamily(
            "tandem:step_time_ratio",
            "Measured over predicted time of steps, by the corrected predictions.",
            buckets=list(zip(bounds, accumulate(counts), strict=True)),
            sum_value=self.told["total"],
        )


class HandOverMetrics:
    """What steps with a part on the host take beyond predicted times, as it was learnt."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Gauge(
            "tandem:hand_over_seconds",
            "Found beyond predicted times: in each layer where rows that decode ride along "
            "(decodes), or beside others (launched), and in each step while cohorts are under way "
            "(cohorts).",
            ["steps"],
            registry=registry,
        )

    def update(self, told: Mapping[str, float]) -> None:
        """As an engine tells of it."""
        for name, seconds in told.items():
            self._seconds.labels(name.removesuffix("_s")).set(seconds)
