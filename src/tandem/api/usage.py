"""Counts tokens as OpenAI reports them."""

from collections.abc import Sequence
from typing import Any

from tandem.engine.frontend.frontend import Job
from tandem.engine.frontend.results import Delta


class UsageCounter:
    """Adds up the deltas of some jobs."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._num_prompt_tokens = sum(len(job.prompt.token_ids) for job in jobs)
        self._num_output_tokens = 0
        self._cached: dict[int, int] = {}

    def add(self, delta: Delta) -> None:
        """Count a delta."""
        self._num_output_tokens += len(delta.token_ids)
        cached = max(delta.cached_tokens, self._cached.get(delta.prompt_index, 0))
        self._cached[delta.prompt_index] = cached

    @property
    def num_output_tokens(self) -> int:
        """Generated so far."""
        return self._num_output_tokens

    def report(self) -> dict[str, Any]:
        """The `usage` object."""
        return {
            "prompt_tokens": self._num_prompt_tokens,
            "completion_tokens": self._num_output_tokens,
            "total_tokens": self._num_prompt_tokens + self._num_output_tokens,
            "prompt_tokens_details": {"cached_tokens": sum(self._cached.values())},
        }
