"""Everything that a server counts, in Prometheus' format."""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.exposition import generate_latest

from tandem.server.calibration_metrics import CalibrationMetrics, HandOverMetrics
from tandem.server.overlap_metrics import OverlapMetrics
from tandem.server.prefix_metrics import PrefixDiskMetrics, PrefixMetrics
from tandem.server.request_metrics import RequestMetrics
from tandem.server.step_metrics import StepMetrics
from tandem.server.vllm_metrics import VllmMetrics


class ServerMetrics:
    """What a server counts; one registry per server, so that several can live in a process.

    Args:
        ttft_bound_s: within which first tokens are wanted; None: nobody asks.
        vllm_model: also tell what vLLM does under its names, of a model of this name; None: do not.

    Attributes:
        requests: what is counted as requests are answered; the rest is the engine's to tell.
    """

    def __init__(self, ttft_bound_s: float | None = None, vllm_model: str | None = None) -> None:
        registry = self._registry = CollectorRegistry()
        self.requests = RequestMetrics(registry, ttft_bound_s)
        self._running = Gauge(
            "tandem:num_requests_running", "Requests being computed.", registry=registry
        )
        self._waiting = Gauge(
            "tandem:num_requests_waiting", "Requests that wait.", registry=registry
        )
        self._kv_usage = Gauge(
            "tandem:kv_cache_usage_perc", "Share of KV blocks in use.", ["tier"], registry=registry
        )
        self._pinned = Gauge(
            "tandem:pinned_host_memory_bytes",
            "Host memory locked for an accelerator's copies, staging buffers left out.",
            registry=registry,
        )
        self._preemptions = Counter("tandem:num_preemptions", "Preemptions.", registry=registry)
        self._preemptions_seen = 0
        self._overlap: OverlapMetrics | None = None  # once an engine tells of it
        self._calibration: CalibrationMetrics | None = None  # likewise
        self._hand_overs: HandOverMetrics | None = None  # likewise
        self._prefix = PrefixMetrics(registry)
        self._steps = StepMetrics(registry)
        self._disk: PrefixDiskMetrics | None = None  # likewise
        self._vllm = None if vllm_model is None else VllmMetrics(registry, vllm_model)

    def render(self, stats: dict[str, Any]) -> bytes:
        """All metrics as text; `stats` is what the engine tells about itself."""
        self._running.set(stats["num_running"])
        self._waiting.set(stats["num_waiting"])
        self._pinned.set(stats["pinned_bytes"])
        self._preemptions.inc(stats["preemptions"] - self._preemptions_seen)
        self._preemptions_seen = stats["preemptions"]
        if (overlap := stats["overlap"]) is not None:
            self._overlap = self._overlap or OverlapMetrics(self._registry)
            self._overlap.update(overlap, stats["recent_overlap"])
        if (prediction := stats["prediction"]) is not None:
            self._calibration = self._calibration or CalibrationMetrics(self._registry, prediction)
            self._calibration.told = prediction
        if (hand_overs := stats["hand_overs"]) is not None:
            self._hand_overs = self._hand_overs or HandOverMetrics(self._registry)
            self._hand_overs.update(hand_overs)
        self._prefix.update(stats["prefix"])
        self._steps.update(stats)
        if (disk := stats["disk"]) is not None:
            self._disk = self._disk or PrefixDiskMetrics(self._registry)
            self._disk.update(disk)
        for tier in stats["tiers"]:
            if total := tier["total_blocks"]:
                self._kv_usage.labels(tier["location"]).set(1 - tier["free_blocks"] / total)
        text = generate_latest(self._registry)
        return text if self._vllm is None else text + generate_latest(self._vllm)
