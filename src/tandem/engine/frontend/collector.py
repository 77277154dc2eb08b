"""Gathers deltas into whole outputs."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tandem.engine.frontend.frontend import Job
from tandem.engine.frontend.results import Delta, GenerationOutput, SampleOutput
from tandem.spec.request import FinishReason, TokenLogprobs


@dataclass(slots=True)
class _Partial:
    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: FinishReason = FinishReason.ABORT
    stop_reason: str | int | None = None


class Collector:
    """Takes the deltas of some jobs in any order; gives their outputs in the jobs' order."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        self._partials = [[_Partial() for _ in range(job.num_samples)] for job in jobs]
        self._cached_tokens = [0] * len(jobs)

    def add(self, delta: Delta) -> None:
        """Append a delta to its sample."""
        partial = self._partials[delta.prompt_index][delta.sample_index]
        partial.texts.append(delta.text)
        partial.token_ids.extend(delta.token_ids)
        partial.logprobs.extend(delta.logprobs)
        cached = max(self._cached_tokens[delta.prompt_index], delta.cached_tokens)
        self._cached_tokens[delta.prompt_index] = cached
        if delta.finish_reason is not None:
            partial.finish_reason = delta.finish_reason
            partial.stop_reason = delta.stop_reason

    def outputs(self) -> list[GenerationOutput]:
        """One output per job. A sample that never ended counts as aborted."""
        return [
            GenerationOutput(
                job.prompt.text,
                job.prompt.token_ids,
                tuple(_finished(index, partial) for index, partial in enumerate(partials)),
                cached_tokens,
            )
            for job, partials, cached_tokens in zip(
                self._jobs, self._partials, self._cached_tokens, strict=True
            )
        ]


def _finished(index: int, partial: _Partial) -> SampleOutput:
    return SampleOutput(
        index,
        "".join(partial.texts),
        tuple(partial.token_ids),
        partial.finish_reason,
        tuple(partial.logprobs),
        partial.stop_reason,
    )
