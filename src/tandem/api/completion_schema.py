"""The body of /v1/completions."""

from typing import Any

from pydantic import Field

from tandem.api.errors import ApiError, unsupported
from tandem.api.fields import GenerationFields
from tandem.engine.frontend.prompts import MAX_SAMPLES
from tandem.spec.sampling import MAX_LOGPROBS, SamplingParams

DEFAULT_MAX_TOKENS = 16

PromptInput = str | list[int]


class CompletionRequest(GenerationFields):
    """OpenAI's fields and the shared extensions."""

    prompt: Any = None
    best_of: int | None = Field(None, ge=1, le=MAX_SAMPLES)
    echo: bool | None = None
    logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)

    @property
    def num_candidates(self) -> int:
        """Samples to generate per prompt, of which the best are returned."""
        return self.best_of or self.num_samples

    def check(self) -> None:
        """See `GenerationFields.check`."""
        super().check()
        if self.num_candidates < self.num_samples:
            raise ApiError(400, "best_of must be at least n", param="best_of")
        if self.num_candidates > self.num_samples and self.stream:
            raise ApiError(
                400,
                "best_of chooses at the end and cannot stream; set stream: false",
                param="best_of",
            )
        if self.echo and self.logprobs is not None:
            raise unsupported(
                "echo with logprobs needs log-probabilities of the prompt, which are not "
                "supported; leave one out",
                "echo",
            )

    def sampling(self) -> SamplingParams:
        """The sampling parameters; log-probabilities are also needed to choose the best. Without a
        limit, it is up to the caller.
        """
        ranks = self.num_candidates > self.num_samples
        logprobs = 0 if ranks and self.logprobs is None else self.logprobs
        return self.sampling_params(self.max_tokens, logprobs)

    def prompts(self) -> list[PromptInput]:
        """One or several prompts, each a text or token ids.

        Raises:
            ApiError: it is neither.
        """
        value = self.prompt
        if isinstance(value, str) or _is_token_ids(value):
            return [value]
        if isinstance(value, list) and (_all_texts(value) or _all_token_ids(value)):
            return value
        raise ApiError(
            400,
            "prompt must be a string, a list of strings, a list of token ids, or a list of such "
            "lists, and not empty",
            param="prompt",
        )


def _all_texts(value: list[object]) -> bool:
    return bool(value) and all(isinstance(item, str) for item in value)


def _all_token_ids(value: list[object]) -> bool:
    return bool(value) and all(map(_is_token_ids, value))


def _is_token_ids(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is int for item in value)
