"""The most that a mixture of sweeps decodes, where linear maps compute rows in whole tiles: no more
than its best sweep.

**Proof.** Of each token that is decoded, each of `L` layers computes a row: in the main lane, or in
a stage that its cohort shares, a layer at a time, alone or with another cohort that stands there.
Let such a row be worth `1 / L`, so that a token is worth 1. Where prompts are read beside, `r` of
their tokens are for each that is decoded: let those be worth `e` each, and a decoded token `1 - e
r`, which comes to the same. Subtract a toll whenever a cohort shares a stage, and give each sweep
as many tolls as that happens per sweep at most: in sum over all sweeps they cancel, or more is
given. So if no sweep is worth more than `R` times its seconds on the accelerator, no more than `R`
tokens are decoded per second, whatever the toll and `e`; those are sought that promise least.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tandem.planner.candidate import COHORTS

ROUNDED_UP = 1 + 1e-9
_NARROWED = 12
"""Times that the range of tolls is, and that of worths: any of them gives a bound."""
_GOLDEN = 0.381966


@dataclass(frozen=True, slots=True, eq=False)
class StageTimes:
    """Seconds on the accelerator, by numbers of rows from 0 on.

    Attributes:
        layers: how many.
        layer_s: of one layer's linear maps, up to all rows that a stage may have.
        sweep_s: of the main lane in all layers, and before, after and between these, but for what
            follows; without any rows there is no such sweep.
        decode_s: of a sweep, what rows that decode a token take beyond those of prompts, in all
            layers and after them: up to as many as may decode.
    """

    layers: int
    layer_s: np.ndarray
    sweep_s: np.ndarray
    decode_s: np.ndarray


@dataclass(frozen=True, slots=True)
class _Worths:
    """Of a token that is decoded, of one of a prompt, and of sharing a stage once."""

    decoded: float
    prompt: float
    toll: float


def most_decoded_per_s(
    times: StageTimes, cohort: int, shared: float, prompt_tokens: float = 0.0
) -> float:
    """Tokens per second.

    Args:
        cohort: rows of each of `COHORTS`, at most, of which a sweep takes some or all through one
            layer, several of them through the same one if they stand there. shared: how often one
            shares a stage per sweep, in the mean at most.
        prompt_tokens: that are read for each that is decoded; 0: what they take is left out.
    """

    def with_toll(toll: float, prompt: float) -> float:
        worths = _Worths(1.0 - prompt * prompt_tokens, prompt, toll)
        return _best_sweep(times, cohort, shared, worths)

    def with_prompts(prompt: float) -> float:
        return _least(lambda toll: with_toll(toll, prompt), 0.0, cohort / times.layers)

    return _least(with_prompts, 0.0, 1.0 / prompt_tokens) if prompt_tokens else with_prompts(0.0)


def _best_sweep(times: StageTimes, cohort: int, shared: float, worths: _Worths) -> float:
    """The most worth per second of any sweep: by Dinkelbach's iteration."""
    rows, joining = np.arange(len(times.sweep_s)), np.arange(1, COHORTS * cohort + 1)
    joined_s = times.layer_s[rows[:, None] + joining] - times.layer_s[rows, None]
    joined = worths.decoded * joining / times.layers - worths.toll * -(-joining // cohort)
    found = 0.0
    while True:
        decoding = _best_decoding(times, worths, found)
        own = worths.prompt * rows + (worths.decoded - worths.prompt) * decoding
        own += worths.toll * shared
        worth, longer_s = _best_joins(joined, joined_s, cohort, found)
        taken_s = times.sweep_s + times.decode_s[decoding] + longer_s
        ratio = float(((own + worth) / taken_s).max())
        if ratio <= found * ROUNDED_UP:
            return found * ROUNDED_UP
        found = ratio


def _best_decoding(times: StageTimes, worths: _Worths, rate: float) -> np.ndarray:
    """Of so many rows of a sweep, from none on, how many had best decode a token where a second is
    worth `rate`; the others are of prompts.
    """
    decode = np.arange(len(times.decode_s))
    left = (worths.decoded - worths.prompt) * decode - rate * times.decode_s
    best = np.maximum.accumulate(left)
    first = np.maximum.accumulate(np.where(left >= best, decode, 0))
    return first[np.minimum(np.arange(len(times.sweep_s)), len(decode) - 1)]


def _best_joins(
    joined: np.ndarray, joined_s: np.ndarray, cohort: int, rate: float
) -> tuple[np.ndarray, np.ndarray]:
    """What cohorts that share stages are worth in a sweep, and its further seconds, by the main
    lane's rows: each in a layer of its own, some in the same one, or not at all, whichever leaves
    most where a second is worth `rate`.

    Args:
        joined, joined_s: of 1, 2, ... rows in one layer, [rows] and [main rows, rows]: as many as
            the fewest cohorts have that can.
    """
    left, main = joined - rate * joined_s, np.arange(len(joined_s))
    together: list[np.ndarray] = []
    for first in range(0, COHORTS * cohort, cohort):
        best = first + left[:, first : first + cohort].argmax(axis=1)
        together.append(np.stack([left[main, best], joined[best], joined_s[main, best]]))
    taken = [np.zeros_like(together[0])]  # by how many cohorts: what is left, worth, and seconds
    for number in range(1, COHORTS + 1):
        ways = [taken[number - 1]]
        ways += [taken[number - size] + together[size - 1] for size in range(1, number + 1)]
        found = np.stack(ways)
        taken.append(found[found[:, 0].argmax(axis=0), :, main].T)
    return taken[-1][1], taken[-1][2]


def _least(value: Callable[[float], float], low: float, high: float) -> float:
    """Of values that fall and then rise, one near the least."""
    left, right = low + _GOLDEN * (high - low), high - _GOLDEN * (high - low)
    at_left, at_right = value(left), value(right)
    least = min(value(low), value(high), at_left, at_right)
    for _ in range(_NARROWED):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = low + _GOLDEN * (high - low)
            at_left = value(left)
        else:
            low, left, at_left = left, right, at_right
            right = high - _GOLDEN * (high - low)
            at_right = value(right)
        least = min(least, at_left, at_right)
    return least
