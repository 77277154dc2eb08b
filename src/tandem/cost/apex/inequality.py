"""Whether two sub-batches beat the accelerator alone (APEX, equations 1 to 6 and algorithm 1)."""

import math
from typing import NamedTuple


class DecodeTimes(NamedTuple):
    """The decoding batch that fills the accelerator's memory, in one layer.

    Attributes:
        linear_s, attention_s: `T_glinear` and `T_gatt`.
        accelerator_tokens_per_s, host_tokens_per_s: attention rates `N_G` and `N_C`.
    """

    linear_s: float
    attention_s: float
    accelerator_tokens_per_s: float
    host_tokens_per_s: float


class PrefillTimes(NamedTuple):
    """The accelerator's times of the same layer when prompts are computed along."""

    linear_s: float
    attention_s: float


def pipelining_threshold(attention_over_linear: float) -> float:
    """The largest `N_G / N_C` at which pipelining a decode-only batch pays (equation 6).

    `2 Tl/Ta + 3 + Ta/Tl`; least, 3 + 2 sqrt(2) = 5.83, at `Ta/Tl` = sqrt(2).

    Raises:
        ValueError: the ratio is not above 0.
    """
    if attention_over_linear <= 0:
        raise ValueError(f"Ta/Tl must be above 0, not {attention_over_linear}")
    return 2 / attention_over_linear + 3 + attention_over_linear


LEAST_THRESHOLD = 3 + 2 * math.sqrt(2)
LEAST_THRESHOLD_RATIO = math.sqrt(2)


def decode_pipelining_pays(times: DecodeTimes) -> bool:
    """Inequality 5: tokens per second of the pipeline above those of the accelerator alone."""
    window_s = 2 * times.linear_s + times.attention_s
    return _rate(times, window_s, window_s) > _rate_alone(times)


def mixed_pipelining_pays_as_published(times: DecodeTimes, prefill: PrefillTimes) -> bool:
    """Algorithm 1 with prefills: the host's window grows, the cycle that it is divided by does not.

    A host without any rate still "pays" where the comparison, with `>=`, is between equals.
    """
    window_s = prefill.linear_s + times.linear_s + prefill.attention_s
    cycle_s = 2 * times.linear_s + times.attention_s
    return _rate(times, window_s, cycle_s) >= _rate_alone(times)


def mixed_pipelining_pays(times: DecodeTimes, prefill: PrefillTimes) -> bool:
    """Corrected: both sides are divided by the time that they take, with the prefills in it.

    Without prefills (equal times) this is inequality 5.
    """
    window_s = prefill.linear_s + times.linear_s + prefill.attention_s
    alone_s = prefill.linear_s + prefill.attention_s
    on_accelerator = times.accelerator_tokens_per_s * times.attention_s
    return _rate(times, window_s, window_s) > on_accelerator / alone_s


def _rate(times: DecodeTimes, host_window_s: float, cycle_s: float) -> float:
    on_accelerator = times.accelerator_tokens_per_s * times.attention_s
    return (on_accelerator + times.host_tokens_per_s * host_window_s) / cycle_s


def _rate_alone(times: DecodeTimes) -> float:
    on_accelerator = times.accelerator_tokens_per_s * times.attention_s
    return on_accelerator / (times.linear_s + times.attention_s)
