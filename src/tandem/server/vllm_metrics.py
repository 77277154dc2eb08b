"""Metrics under vLLM's names, for dashboards and autoscalers that are made for it."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

_OWN, _THEIRS = "tandem:", "vllm:"
_SAME = frozenset(
    {
        "num_requests_running",
        "num_requests_waiting",
        "kv_cache_usage_perc",
        "num_preemptions",
        "prompt_tokens",
        "generation_tokens",
        "request_success",
        "time_to_first_token_seconds",
        "inter_token_latency_seconds",
        "e2e_request_latency_seconds",
        "prefix_cache_queries",
        "prefix_cache_hits",
    }
)
"""What means the same there, without endings such as `_total`."""


class VllmMetrics(Collector):
    """Those of a registry's metrics that vLLM has, too, as it calls and labels them.

    Args:
        model_name: value of the label by which its dashboards choose.
    """

    def __init__(self, registry: CollectorRegistry, model_name: str) -> None:
        self._registry = registry
        self._labels = {"model_name": model_name, "engine": "0"}

    def collect(self) -> Iterator[Metric]:
        """Anew for each scrape."""
        for family in self._registry.collect():
            if family.name.removeprefix(_OWN) in _SAME:
                yield self._renamed(family)

    def _renamed(self, family: Metric) -> Metric:
        renamed = Metric(_theirs(family.name), family.documentation, family.type)
        renamed.samples = [
            sample._replace(name=_theirs(sample.name), labels=sample.labels | self._labels)
            for sample in family.samples
        ]
        return renamed


def _theirs(name: str) -> str:
    return _THEIRS + name.removeprefix(_OWN)
