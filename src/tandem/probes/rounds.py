"""Medians over rounds, in turns, of calls that may be too short to be timed alone."""

import time
from collections.abc import Hashable, Mapping
from statistics import median
from typing import TypeVar

from tandem.probes.timing import Sample

_LEAST_S = 2e-3  # of a sample: torch's threads may still spin for a while after a call
_MOST_CALLS = 16
_LONG_S = 50e-3  # what is slow at first, threads and memory for results, is little of that
_Name = TypeVar("_Name", bound=Hashable)


def median_seconds(samples: Mapping[_Name, Sample], rounds: int) -> dict[_Name, float]:
    """Of each sample, A B A B, after a round that is thrown away and finds how often to call.

    Where there is one round, since time is short, what took long enough then is not called again.
    """
    first, calls = dict[_Name, float](), dict[_Name, int]()
    for name, sample in samples.items():
        first[name], taken_s = _first_s(sample)
        calls[name] = max(1, min(_MOST_CALLS, round(_LEAST_S / taken_s)))
    found: dict[_Name, list[float]] = {name: [] for name in samples}
    next_call = dict.fromkeys(samples, 2)
    for _ in range(rounds):
        for name, sample in samples.items():
            if rounds == 1 and first[name] >= _LONG_S:
                found[name].append(first[name])
                continue
            begin, count = next_call[name], calls[name]
            found[name].append(median(sample(begin + i) for i in range(count)))
            next_call[name] = begin + count
    return {name: median(times) for name, times in found.items()}


def most_calls(rounds: int) -> int:
    """That `median_seconds` makes of a sample."""
    return 2 + rounds * _MOST_CALLS


def _first_s(sample: Sample) -> tuple[float, float]:
    """Seconds that it says, and those that it took, which are more if it is a mean of several.

    Of a short one the second call counts as well: the first may be slow for once.
    """
    first_s = sample(0)
    if first_s >= _LEAST_S:
        return first_s, first_s
    begin_s = time.perf_counter()
    second_s = sample(1)
    taken_s = time.perf_counter() - begin_s
    found_s = min(first_s, second_s)
    return found_s, max(found_s, taken_s)
