"""What requests take, in Prometheus' format."""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from prometheus_client import CollectorRegistry, Counter, Histogram

from tandem.engine.frontend.frontend import Job
from tandem.engine.frontend.generation import Generation
from tandem.engine.frontend.results import Delta
from tandem.spec.errors import TandemError
from tandem.spec.request import FinishReason

_LATENCIES_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_TOKEN_LATENCIES_S = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)


class RequestMetrics:
    """Latencies, tokens and ends of requests, as their callers see them.

    Args:
        ttft_bound_s: within which first tokens are wanted; None: nobody asks.
    """

    def __init__(self, registry: CollectorRegistry, ttft_bound_s: float | None) -> None:
        self._first_token_s = Histogram(
            "tandem:time_to_first_token_seconds",
            "From arrival to the first token.",
            buckets=_LATENCIES_S,
            registry=registry,
        )
        self._ttft_bound_s = ttft_bound_s
        self._first_tokens = None if ttft_bound_s is None else _first_tokens(registry)
        self._inter_token_s = Histogram(
            "tandem:inter_token_latency_seconds",
            "Between two outputs of a sample.",
            buckets=_TOKEN_LATENCIES_S,
            registry=registry,
        )
        self._request_s = Histogram(
            "tandem:e2e_request_latency_seconds",
            "From arrival to the last token.",
            buckets=_LATENCIES_S,
            registry=registry,
        )
        self._prompt_tokens = Counter(
            "tandem:prompt_tokens", "Prompt tokens of accepted requests.", registry=registry
        )
        self._output_tokens = Counter(
            "tandem:generation_tokens", "Tokens generated.", registry=registry
        )
        self._success = Counter(
            "tandem:request_success",
            "Samples that ended, by reason; abort: the client left, or the server stopped.",
            ["finished_reason"],
            registry=registry,
        )

    async def observed(
        self, generation: Generation, jobs: Sequence[Job], arrived_at: float
    ) -> AsyncGenerator[Delta, None]:
        """The deltas of `generation`, counted on their way.

        Args:
            jobs: what it generates.
            arrived_at: when the request came, by `time.perf_counter`.
        """
        self._prompt_tokens.inc(sum(len(job.prompt.token_ids) for job in jobs))
        last_at: dict[tuple[int, int], float] = {}
        num_unended = sum(job.num_samples for job in jobs)
        reason = FinishReason.ABORT
        try:
            async with aclosing(generation.__aiter__()) as deltas:
                async for delta in deltas:
                    self._observe(delta, arrived_at, last_at)
                    num_unended -= delta.finish_reason is not None
                    yield delta
        except TandemError:
            reason = FinishReason.ERROR
            raise
        finally:
            self._success.labels(str(reason)).inc(num_unended)

    def _observe(
        self, delta: Delta, arrived_at: float, last_at: dict[tuple[int, int], float]
    ) -> None:
        now = time.perf_counter()
        sample = (delta.prompt_index, delta.sample_index)
        if delta.token_ids:
            if sample in last_at:
                self._inter_token_s.observe(now - last_at[sample])
            else:
                self._observe_first(now - arrived_at)
            last_at[sample] = now
            self._output_tokens.inc(len(delta.token_ids))
        if delta.finish_reason is not None:
            self._request_s.observe(now - arrived_at)
            self._success.labels(str(delta.finish_reason)).inc()

    def _observe_first(self, latency_s: float) -> None:
        self._first_token_s.observe(latency_s)
        if self._first_tokens is not None and self._ttft_bound_s is not None:
            in_time = "yes" if latency_s <= self._ttft_bound_s else "no"
            self._first_tokens.labels(in_time).inc()


def _first_tokens(registry: CollectorRegistry) -> Counter:
    return Counter(
        "tandem:first_tokens",
        "First tokens, by whether they came within --ttft-bound.",
        ["in_time"],
        registry=registry,
    )
