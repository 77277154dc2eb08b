"""Two sub-batches or the accelerator alone (NEO, section 3.2, step 6)."""

from typing import NamedTuple


class StepEstimate(NamedTuple):
    """A step that could be executed.

    Attributes:
        time_s: `T`, all layers.
        requests: `x`, rows in the step, whatever they compute.
        decode_tokens, prefill_tokens: query tokens of either phase.
    """

    time_s: float
    requests: int
    decode_tokens: int
    prefill_tokens: int = 0

    @property
    def requests_per_s(self) -> float:
        """What NEO compares: a prefill of 3,000 tokens counts as one decode."""
        return self.requests / self.time_s if self.time_s else 0.0

    def useful_tokens_per_s(self, prefill_weight: float) -> float:
        """Tokens, those of prompts at `prefill_weight` of a generated one."""
        useful = self.decode_tokens + prefill_weight * self.prefill_tokens
        return useful / self.time_s if self.time_s else 0.0


def pipelines_as_published(pipelined: StepEstimate, alone: StepEstimate) -> bool:
    """Appendix A: the accelerator alone only if its rate is higher."""
    return not alone.requests_per_s > pipelined.requests_per_s


def pipelines_for_tokens(
    pipelined: StepEstimate,
    alone: StepEstimate,
    *,
    prefill_weight: float,
    latency_bound_s: float | None = None,
) -> bool:
    """Repaired: more useful tokens per second, within the bound on a step's time.

    A step that breaks the bound is taken only if the other breaks it further.
    """
    if latency_bound_s is not None:
        over = [max(step.time_s - latency_bound_s, 0.0) for step in (pipelined, alone)]
        if over[0] != over[1]:
            return over[0] < over[1]
    return pipelined.useful_tokens_per_s(prefill_weight) > alone.useful_tokens_per_s(prefill_weight)
