"""A candidate and what it would achieve."""

from dataclasses import dataclass

from tandem.planner.candidate import Candidate
from tandem.planner.rates import Prediction


@dataclass(frozen=True, slots=True)
class Option:
    """A candidate with its prediction."""

    candidate: Candidate
    prediction: Prediction

    @property
    def tokens_per_s(self) -> float:
        """Over the whole job: what options are ranked by; alone, it is the inverse of latency."""
        return self.prediction.rates.job_tokens_per_s
