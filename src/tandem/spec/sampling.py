"""Sampling parameters of a request."""

from dataclasses import dataclass

from tandem.spec import forms
from tandem.spec.errors import RequestError

MAX_LOGPROBS = 20
MAX_STOP_STRINGS = 16
MAX_LOGIT_BIAS = 1024
MAX_STOP_TOKEN_IDS = 1024
MAX_COUNT = 2**31 - 1
"""Counts and token ids lie in 32-bit columns on every device."""

_FORMS: dict[str, forms.Form] = {
    "max_tokens": forms.optional(forms.whole_number),
    "min_tokens": forms.whole_number,
    "temperature": forms.number,
    "top_p": forms.number,
    "top_k": forms.whole_number,
    "min_p": forms.number,
    "repetition_penalty": forms.number,
    "presence_penalty": forms.number,
    "frequency_penalty": forms.number,
    "logit_bias": forms.or_empty(forms.numbers_by_id),
    "seed": forms.optional(forms.whole_number),
    "stop": forms.or_empty(forms.texts),
    "stop_token_ids": forms.or_empty(forms.whole_numbers),
    "ignore_eos": forms.flag,
    "include_stop_str_in_output": forms.flag,
    "logprobs": forms.optional(forms.whole_number),
}


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the tokens of one request are chosen and when it ends.

    `temperature == 0` is greedy. `top_k == 0` and `top_p == 1` switch those filters off.
    `max_tokens is None` means: up to the model's context length. `logprobs` is the number of
    alternatives to return (0: only the sampled token's), None for none.
    `seed is None` lets the engine derive one from its own seed and the request's number.

    `stop` may also be given as one string, `logit_bias` as a mapping; any sequence stands for a
    tuple, and None for an empty one. The fields then hold tuples.

    Raises:
        RequestError: a value of the wrong type or outside its range (names the parameter).
    """

    max_tokens: int | None = 16
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    logprobs: int | None = None

    def __post_init__(self) -> None:
        forms.apply_forms(self, _FORMS, RequestError)
        _check(
            self.max_tokens is None or 1 <= self.max_tokens <= MAX_COUNT,
            "max_tokens",
            self.max_tokens,
            f"between 1 and {MAX_COUNT}",
        )
        _check(
            0 <= self.min_tokens <= MAX_COUNT,
            "min_tokens",
            self.min_tokens,
            f"between 0 and {MAX_COUNT}",
        )
        if self.max_tokens is not None:
            _check(
                self.min_tokens <= self.max_tokens,
                "min_tokens",
                self.min_tokens,
                "at most max_tokens",
            )
        _check(
            0.0 <= self.temperature <= 100.0, "temperature", self.temperature, "between 0 and 100"
        )
        _check(0.0 < self.top_p <= 1.0, "top_p", self.top_p, "above 0 and at most 1")
        _check(
            -1 <= self.top_k <= MAX_COUNT,
            "top_k",
            self.top_k,
            f"0 or -1 (off) or between 1 and {MAX_COUNT}",
        )
        _check(0.0 <= self.min_p <= 1.0, "min_p", self.min_p, "between 0 and 1")
        _check(
            0.0 < self.repetition_penalty <= 100.0,
            "repetition_penalty",
            self.repetition_penalty,
            "above 0 and at most 100",
        )
        _check(
            -2.0 <= self.presence_penalty <= 2.0,
            "presence_penalty",
            self.presence_penalty,
            "between -2 and 2",
        )
        _check(
            -2.0 <= self.frequency_penalty <= 2.0,
            "frequency_penalty",
            self.frequency_penalty,
            "between -2 and 2",
        )
        _check(
            self.logprobs is None or 0 <= self.logprobs <= MAX_LOGPROBS,
            "logprobs",
            self.logprobs,
            f"between 0 and {MAX_LOGPROBS}",
        )
        _check(
            len(self.stop) <= MAX_STOP_STRINGS,
            "stop",
            len(self.stop),
            f"at most {MAX_STOP_STRINGS} strings",
        )
        _check(all(self.stop), "stop", "''", "non-empty strings")
        _check(
            len(self.stop_token_ids) <= MAX_STOP_TOKEN_IDS,
            "stop_token_ids",
            len(self.stop_token_ids),
            f"at most {MAX_STOP_TOKEN_IDS} ids",
        )
        _check_token_ids("stop_token_ids", self.stop_token_ids)
        _check_token_ids("logit_bias", tuple(token_id for token_id, _ in self.logit_bias))
        _check(
            len(self.logit_bias) <= MAX_LOGIT_BIAS,
            "logit_bias",
            len(self.logit_bias),
            f"at most {MAX_LOGIT_BIAS} entries",
        )
        _check(
            all(-100.0 <= b <= 100.0 for _, b in self.logit_bias),
            "logit_bias",
            "a value",
            "between -100 and 100",
        )
        _check(
            self.seed is None or -(2**63) <= self.seed < 2**64,
            "seed",
            self.seed,
            "a 64-bit integer",
        )

    @property
    def greedy(self) -> bool:
        """True if the most probable token is always taken."""
        return self.temperature == 0.0

    @property
    def needs_history(self) -> bool:
        """True if sampling depends on the values of earlier tokens (so it is done late)."""
        return (
            self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )


def _check_token_ids(param: str, token_ids: tuple[int, ...]) -> None:
    for token_id in token_ids:
        wanted = f"token ids between 0 and {MAX_COUNT}"
        _check(0 <= token_id <= MAX_COUNT, param, token_id, wanted)


def _check(ok: bool, param: str, value: object, wanted: str) -> None:
    # NaN fails every comparison above, so it lands here too.
    if not ok:
        raise RequestError(f"{param} must be {wanted}, not {value}", param=param)
