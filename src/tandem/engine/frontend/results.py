"""What a caller gets: pieces while it runs, and whole outputs."""

from dataclasses import dataclass

from tandem.spec.request import FinishReason, TokenLogprobs


@dataclass(frozen=True, slots=True)
class Delta:
    """News about one sample of one prompt.

    Attributes:
        prompt_index, sample_index: which prompt of the call, which of its `n` samples.
        text: new text; may be empty while it could be part of a stop string or a character.
        token_ids: new tokens.
        logprobs: one entry per token in `token_ids`, or empty if not asked for.
        finish_reason: set in the last delta of a sample.
        stop_reason: the caller's stop string or stop token id that ended it, if one did.
        cached_tokens: prompt tokens taken from the prefix cache.
    """

    prompt_index: int
    sample_index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class SampleOutput:
    """One finished sample; fields as in `Delta`."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    logprobs: tuple[TokenLogprobs, ...] = ()
    stop_reason: str | int | None = None


@dataclass(frozen=True, slots=True)
class GenerationOutput:
    """All samples of one prompt.

    Attributes:
        prompt: the text given, or None if token ids were.
        prompt_token_ids: what the model read.
        outputs: one per sample, in order.
        cached_tokens: prompt tokens taken from the prefix cache.
    """

    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[SampleOutput, ...]
    cached_tokens: int = 0
