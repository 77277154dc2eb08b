"""A request as the engine sees it: token ids only (contract 11)."""

from dataclasses import dataclass
from enum import StrEnum

from tandem.spec.sampling import SamplingParams


class FinishReason(StrEnum):
    """Why a request ended; values are OpenAI's where it has one."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One sequence to generate. `n > 1` is several of these with different seeds.

    Attributes:
        request_id: unique among the unfinished requests of an engine.
        prompt_token_ids: at least one token.
        sampling: stop *strings* in it are the front end's business, not the engine's.
        priority: lower runs first; equal priorities run in order of arrival.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    priority: int = 0

    @property
    def patient(self) -> bool:
        """Whether its tokens may take longer than others' are wanted in: `service_tier` flex."""
        return self.priority > 0


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities of one generated token and of the likeliest alternatives.

    Attributes:
        logprob: natural log of the sampled token's probability, before temperature and filters.
        top_token_ids, top_logprobs: the alternatives, likeliest first.
    """

    logprob: float
    top_token_ids: tuple[int, ...] = ()
    top_logprobs: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """News about one request: tokens since the last one, and its end if it ended.

    Attributes:
        logprobs: one entry per token in `token_ids`, or empty if not asked for.
        error: a message if `finish_reason` is ERROR.
        cached_tokens: prompt tokens taken from the prefix cache.
    """

    request_id: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
    error: str | None = None
    cached_tokens: int = 0
