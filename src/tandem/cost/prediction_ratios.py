"""How steps' measured times compare with predicted ones, counted since start."""

from bisect import bisect_left
from dataclasses import dataclass

RATIO_BOUNDS = (0.5, 0.7, 0.8, 0.9, 0.95, 1.05, 1.1, 1.25, 1.5, 2.0)
"""Upper ends of what is counted together; the last count is of all beyond."""


@dataclass(frozen=True, slots=True)
class PredictionRatios:
    """Counts of measured over predicted times; plain values only.

    Attributes:
        linear, attention, host, copies_in, copies_out: factors by which terms of the price list
            are multiplied now (`TermFactors`).
        counts: steps by ratio, [len(RATIO_BOUNDS) + 1]. total: sum of all ratios.
    """

    linear: float = 1.0
    attention: float = 1.0
    host: float = 1.0
    copies_in: float = 1.0
    copies_out: float = 1.0
    counts: tuple[int, ...] = (0,) * (len(RATIO_BOUNDS) + 1)
    total: float = 0.0


class RatioCounter:
    """Counts ratios as they come."""

    def __init__(self) -> None:
        self.counts = [0] * (len(RATIO_BOUNDS) + 1)
        self.total = 0.0

    def add(self, predicted_s: float, measured_s: float) -> None:
        """A step's terms that both are known of; neither counts where one is 0."""
        if predicted_s > 0 and measured_s > 0:
            ratio = measured_s / predicted_s
            self.counts[bisect_left(RATIO_BOUNDS, ratio)] += 1
            self.total += ratio
