"""The prefix cache's counters in Prometheus' format."""

from typing import Any

from prometheus_client import CollectorRegistry, Counter


class PrefixMetrics:
    """Follows what an engine has counted since its start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        queries = Counter(
            "tandem:prefix_cache_queries", "Tokens of admitted requests.", registry=registry
        )
        hits = Counter(
            "tandem:prefix_cache_hits",
            "Those found in the prefix cache, by the memory that they lay in.",
            ["tier"],
            registry=registry,
        )
        fetched = Counter(
            "tandem:prefix_cache_fetched_tokens",
            "Those found that were brought from the host.",
            registry=registry,
        )
        demoted = Counter(
            "tandem:prefix_cache_demoted_blocks",
            "Blocks copied to the host before they were evicted.",
            registry=registry,
        )
        evicted = Counter(
            "tandem:prefix_cache_evicted_blocks",
            "Blocks whose content gave way to another use.",
            ["tier"],
            registry=registry,
        )
        self._counters = {
            "query_tokens": queries,
            "device_hit_tokens": hits.labels("device"),
            "host_hit_tokens": hits.labels("host"),
            "fetched_tokens": fetched,
            "demoted_blocks": demoted,
            "evicted_device_blocks": evicted.labels("device"),
            "evicted_host_blocks": evicted.labels("host"),
        }
        self._seen = dict.fromkeys(self._counters, 0)

    def update(self, stats: dict[str, Any]) -> None:
        """Add what has been counted since the last call."""
        for name, counter in self._counters.items():
            counter.inc(stats[name] - self._seen[name])
            self._seen[name] = stats[name]
