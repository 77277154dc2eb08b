"""The prefix cache's counters in Prometheus' format."""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge


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


class PrefixDiskMetrics:
    """The same of the disk below the prefix cache."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._stored = Gauge(
            "tandem:prefix_disk_stored_blocks", "Blocks on the disk.", registry=registry
        )
        self._room = Gauge(
            "tandem:prefix_disk_room_blocks", "Blocks that there is room for.", registry=registry
        )
        self._writing = Gauge(
            "tandem:prefix_disk_writing", "0 once the disk took no more.", registry=registry
        )
        texts = {
            "written_blocks": "Blocks written to the disk.",
            "read_blocks": "Blocks brought back from it.",
            "damaged_blocks": "Blocks that came back otherwise than they were written.",
            "evicted_blocks": "Blocks that gave way to others on the disk.",
        }
        self._counters = {
            name: Counter(f"tandem:prefix_disk_{name}", text, registry=registry)
            for name, text in texts.items()
        }
        self._seen = dict.fromkeys(texts, 0)

    def update(self, stats: dict[str, Any]) -> None:
        """Add what has been counted since the last call, and what is there now."""
        self._stored.set(stats["stored_blocks"])
        self._room.set(stats["room_blocks"])
        self._writing.set(stats["writing"])
        for name, counter in self._counters.items():
            counter.inc(stats[name] - self._seen[name])
            self._seen[name] = stats[name]
