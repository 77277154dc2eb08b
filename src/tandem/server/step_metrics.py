"""What the engine's steps do with requests on the host, and with those that come back from there,
in Prometheus' format.
"""

from typing import Any

from prometheus_client import CollectorRegistry, Counter


class StepMetrics:
    """Follows what an engine has counted since its start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._steps = Counter(
            "tandem:steps", "Steps, by what the strategy calls them.", ["way"], registry=registry
        )
        attended = Counter(
            "tandem:attention_tokens",
            "Tokens whose keys, in part or all, were attended to in a tier.",
            ["tier"],
            registry=registry,
        )
        self._counters = {
            "cohort_joins": Counter(
                "tandem:cohort_joins",
                "Layers at which cohorts of requests on the host joined a step.",
                registry=registry,
            ),
            "cohort_waits": Counter(
                "tandem:cohort_waits",
                "Those at which they could not, since the CPU was not done.",
                registry=registry,
            ),
            "mixed_returns": Counter(
                "tandem:mixed_returns",
                "Preempted requests that came back computed again at their beginning, and copied "
                "behind it.",
                registry=registry,
            ),
            "device_attention_tokens": attended.labels("device"),
            "host_attention_tokens": attended.labels("host"),
        }
        self._seen = dict.fromkeys(self._counters, 0)
        self._ways: dict[str, int] = {}

    def update(self, stats: dict[str, Any]) -> None:
        """Add what has been counted since the last call."""
        for name, counter in self._counters.items():
            counter.inc(stats[name] - self._seen[name])
            self._seen[name] = stats[name]
        for way, count in stats["ways"].items():
            self._steps.labels(way).inc(count - self._ways.get(way, 0))
            self._ways[way] = count
