"""Sampling parameters of a request."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tandem.spec import forms
from tandem.spec.errors import RequestError

MAX_LOGPROBS = 20
MAX_STOP_STRINGS = 16
MAX_LOGIT_BIAS = 1024
MAX_BIAS = 100
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

# None is always within.
_RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "max_tokens": (lambda n: 1 <= n <= MAX_COUNT, f"between 1 and {MAX_COUNT}"),
    "min_tokens": (lambda n: 0 <= n <= MAX_COUNT, f"between 0 and {MAX_COUNT}"),
    "temperature": (lambda x: 0 <= x <= 100, "between 0 and 100"),
    "top_p": (lambda x: 0 < x <= 1, "above 0 and at most 1"),
    "top_k": (lambda n: -1 <= n <= MAX_COUNT, f"0 or -1 (off) or between 1 and {MAX_COUNT}"),
    "min_p": (lambda x: 0 <= x <= 1, "between 0 and 1"),
    "repetition_penalty": (lambda x: 0 < x <= 100, "above 0 and at most 100"),
    "presence_penalty": (lambda x: -2 <= x <= 2, "between -2 and 2"),
    "frequency_penalty": (lambda x: -2 <= x <= 2, "between -2 and 2"),
    "logprobs": (lambda n: 0 <= n <= MAX_LOGPROBS, f"between 0 and {MAX_LOGPROBS}"),
    "seed": (lambda n: -(2**63) <= n < 2**64, "a 64-bit integer"),
}
_LENGTHS = {
    "stop": (MAX_STOP_STRINGS, "strings"),
    "stop_token_ids": (MAX_STOP_TOKEN_IDS, "ids"),
    "logit_bias": (MAX_LOGIT_BIAS, "entries"),
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
        for name, (is_within, wanted) in _RANGES.items():
            value = getattr(self, name)
            _check(value is None or is_within(value), name, value, wanted)
        if self.max_tokens is not None:
            at_most = self.min_tokens <= self.max_tokens
            _check(at_most, "min_tokens", self.min_tokens, "at most max_tokens")
        self._check_lists()

    def _check_lists(self) -> None:
        for name, (most, what) in _LENGTHS.items():
            count = len(getattr(self, name))
            _check(count <= most, name, count, f"at most {most} {what}")
        _check(all(self.stop), "stop", "an empty one", "non-empty strings")
        _check_token_ids("stop_token_ids", self.stop_token_ids)
        _check_token_ids("logit_bias", tuple(token_id for token_id, _ in self.logit_bias))
        for token_id, bias in self.logit_bias:
            within = -MAX_BIAS <= bias <= MAX_BIAS
            given = f"{bias} for token {token_id}"
            _check(within, "logit_bias", given, f"between -{MAX_BIAS} and {MAX_BIAS}")

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
    # NaN fails every comparison, so it lands here too.
    if not ok:
        given = value if isinstance(value, str) else forms.shown(value)
        raise RequestError(f"{param} must be {wanted}, not {given}", param=param)
