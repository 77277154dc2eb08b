"""Compare variants fairly: in turns, in one run, so that all meet the same noise."""

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

_RESAMPLES = 2000
LEAST_PAIRS = 3
"""Fewer say nothing of how far another run's median may be off."""


def interleave(
    variants: Mapping[str, Callable[[], float]], rounds: int
) -> dict[str, tuple[float, ...]]:
    """Samples of each variant, taken A B A B after one warm-up of all that is thrown away."""
    for measure in variants.values():
        measure()
    samples: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, measure in variants.items():
            samples[name].append(measure())
    return {name: tuple(values) for name, values in samples.items()}


@dataclass(frozen=True, slots=True)
class PairedRatio:
    """How a variant compares with another.

    Attributes:
        median: of the ratios of samples taken in the same round. lower_95: bootstrap limit of that
            median; a claim of `at least as good` rests on it. None: of too few pairs.
        spread: lowest and highest ratio.
    """

    median: float
    lower_95: float | None
    spread: tuple[float, float]


def paired_ratio(samples: Sequence[float], baseline: Sequence[float]) -> PairedRatio:
    """`samples` over `baseline`, round by round."""
    ratios = [a / b for a, b in zip(samples, baseline, strict=True)]
    spread = (min(ratios), max(ratios))
    if len(ratios) < LEAST_PAIRS:
        return PairedRatio(statistics.median(ratios), None, spread)
    draw = random.Random(0)
    medians = sorted(
        statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(_RESAMPLES)
    )
    lower = medians[int(0.05 * _RESAMPLES)]
    return PairedRatio(statistics.median(ratios), lower, spread)
