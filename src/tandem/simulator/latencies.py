"""What requests waited, from the moments at which they came, began and ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tandem.spec.workload import RequestShape

QUANTILES = (*(percent / 100 for percent in range(0, 100, 5)), 0.99, 1.0)
"""Shares of the requests by which a distribution is told."""


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of a latency in seconds, over requests.

    Attributes:
        quantiles_s: its distribution: what as many of them do not exceed as `QUANTILES` says,
            the least and the most included.
    """

    mean_s: float
    p50_s: float
    p90_s: float
    p99_s: float
    quantiles_s: tuple[float, ...]

    @staticmethod
    def of(samples: Sequence[float]) -> "Percentiles":
        """Linear between samples."""
        p50, p90, p99, *every = np.quantile(samples, (0.5, 0.9, 0.99, *QUANTILES)).tolist()
        return Percentiles(float(np.mean(samples)), p50, p90, p99, tuple(every))


@dataclass(frozen=True, slots=True)
class Latencies:
    """Seconds of each request, in the order of the workload.

    Attributes:
        ttft_s: from a request's arrival to its first token, waiting included.
        tpot_s: between tokens after the first, a mean of each request that has two.
        latency_s: from a request's arrival to its last token.
    """

    ttft_s: tuple[float, ...]
    tpot_s: tuple[float, ...]
    latency_s: tuple[float, ...]

    @staticmethod
    def of(
        requests: Sequence[RequestShape],
        first_s: Mapping[str, float],
        finish_s: Mapping[str, float],
        tokens: Mapping[str, int],
    ) -> "Latencies":
        """Of requests that have all ended.

        Args:
            first_s, finish_s: when the first and the last token was known to the host.
            tokens: given out. All three by a request's number in the workload.
        """
        ids = [str(number) for number in range(len(requests))]
        arrived = dict(zip(ids, (shape.arrival_s for shape in requests), strict=True))
        return Latencies(
            tuple(first_s[name] - arrived[name] for name in ids),
            tuple(
                (finish_s[name] - first_s[name]) / (tokens[name] - 1)
                for name in ids
                if tokens[name] > 1
            ),
            tuple(finish_s[name] - arrived[name] for name in ids),
        )
