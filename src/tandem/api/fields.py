"""Fields that completions and chat completions share, and what they mean to the engine."""

from typing import Any, Literal

from pydantic import Field

from tandem.api.body import StrictBody, refuse_unknown
from tandem.api.errors import ApiError, unsupported
from tandem.engine.frontend.prompts import MAX_SAMPLES
from tandem.spec.errors import RequestError
from tandem.spec.sampling import SamplingParams

MAX_SEQUENCES = 2048
"""Most prompts times samples of one request."""

ServiceTier = Literal["auto", "default", "flex", "priority", "scale"]

# Lower runs first.
_PRIORITY = {"flex": 1, "priority": -1}


class StreamOptions(StrictBody):
    """What a stream carries besides text."""

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: bool | None = None


class GenerationFields(StrictBody):
    """Parameters of both kinds of completion; names are OpenAI's, then vLLM's."""

    model: str | None = None
    n: int | None = Field(None, ge=1, le=MAX_SAMPLES)
    max_tokens: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    service_tier: ServiceTier | None = None

    min_tokens: int | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    add_special_tokens: bool | None = None

    # These say who asks, or how to account for it, and do not change the result.
    user: str | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    @property
    def num_samples(self) -> int:
        """Samples wanted per prompt."""
        return self.n or 1

    @property
    def priority(self) -> int:
        """The engine's priority for the service tier."""
        return _PRIORITY.get(self.service_tier or "default", 0)

    @property
    def served_tier(self) -> ServiceTier | None:
        """As which it is served; None: no answer names it."""
        if self.service_tier is None or self.service_tier in _PRIORITY:
            return self.service_tier
        return "default"

    @property
    def wants_usage(self) -> bool:
        """True if a stream shall end with token counts."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def check(self) -> None:
        """Refuse what cannot be carried out, or would be ignored otherwise.

        Raises:
            ApiError: there is something.
        """
        if self.skip_special_tokens is False:
            raise unsupported(
                "special tokens are left out of texts; skip_special_tokens can only be true",
                "skip_special_tokens",
            )
        self._check_stream()

    def _check_stream(self) -> None:
        if self.stream_options is None:
            return
        refuse_unknown(self.stream_options, "stream_options.")
        if not self.stream:
            raise ApiError(400, "stream_options needs stream: true; set it", param="stream_options")

    def sampling_params(self, max_tokens: int | None, logprobs: int | None) -> SamplingParams:
        """These fields as sampling parameters; null means the default.

        Raises:
            RequestError: a value out of range.
        """
        given: dict[str, Any] = {
            "min_tokens": self.min_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": self.min_p,
            "repetition_penalty": self.repetition_penalty,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "seed": self.seed,
            "ignore_eos": self.ignore_eos,
            "include_stop_str_in_output": self.include_stop_str_in_output,
            "stop": _as_tuple(self.stop),
            "stop_token_ids": tuple(self.stop_token_ids or ()),
            "logit_bias": _logit_bias(self.logit_bias or {}),
            "logprobs": logprobs,
        }
        present = {name: value for name, value in given.items() if value is not None}
        return SamplingParams(max_tokens=max_tokens, **present)


def check_sequences(num_prompts: int, num_samples: int) -> None:
    """Refuse a request that asks for too much at once.

    Raises:
        RequestError: prompts times samples are too many.
    """
    if num_prompts * num_samples > MAX_SEQUENCES:
        raise RequestError(
            f"{num_prompts} prompts with {num_samples} samples each make "
            f"{num_prompts * num_samples} sequences, and one request may ask for {MAX_SEQUENCES}; "
            "send several requests",
            param="n" if num_samples > num_prompts else "prompt",
        )


def _as_tuple(stop: str | list[str] | None) -> tuple[str, ...]:
    return (stop,) if isinstance(stop, str) else tuple(stop or ())


def _logit_bias(biases: dict[str, float]) -> tuple[tuple[int, float], ...]:
    try:
        return tuple((int(token_id), bias) for token_id, bias in biases.items())
    except ValueError:
        raise RequestError(
            "logit_bias must map token ids, written as strings, to numbers", param="logit_bias"
        ) from None
