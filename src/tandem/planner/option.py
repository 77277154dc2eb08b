"""A candidate and what it would achieve."""

from dataclasses import dataclass

from tandem.planner.candidate import Candidate
from tandem.planner.rates import Prediction


@dataclass(frozen=True, slots=True)
class Option:
    """A candidate with its prediction.

    Attributes:
        in_step_per_s: tokens per second over the whole job if its requests are all there at once
            and it has been lived through; None: not, or they are not.
    """

    candidate: Candidate
    prediction: Prediction
    in_step_per_s: float | None = None

    @property
    def tokens_per_s(self) -> float:
        """Over the whole job: what options are ranked by; alone, it is the inverse of latency."""
        if self.in_step_per_s is not None:
            return self.in_step_per_s
        return self.prediction.rates.job_tokens_per_s
