"""A candidate and what it would achieve."""

from dataclasses import dataclass, replace

from tandem.planner.candidate import Candidate
from tandem.planner.rates import Prediction, Rates


@dataclass(frozen=True, slots=True)
class Option:
    """A candidate with its prediction.

    Attributes:
        in_step_per_s: tokens per second over the whole job if its requests are all there at once
            and it has been lived through; None: not, or they are not.
        in_step_tpot_s, in_step_slow_tpot_s: likewise, between tokens of a request in the mean, as
            in `Rates`; None as well where no request has several tokens in that lane.
    """

    candidate: Candidate
    prediction: Prediction
    in_step_per_s: float | None = None
    in_step_tpot_s: float | None = None
    in_step_slow_tpot_s: float | None = None

    @property
    def tokens_per_s(self) -> float:
        """Over the whole job: what options are ranked by; alone, it is the inverse of latency."""
        if self.in_step_per_s is not None:
            return self.in_step_per_s
        return self.prediction.rates.job_tokens_per_s

    @property
    def decodes(self) -> bool:
        """Whether any request has a second token; not known of those that are not lived through."""
        seen = self.in_step_tpot_s, self.in_step_slow_tpot_s
        return self.in_step_per_s is None or seen != (None, None)

    @property
    def seen(self) -> Rates:
        """With the time between tokens that requests see: of those that are lived through, in the
        mean of the job; else out of step.
        """
        rates = self.prediction.rates
        if self.in_step_tpot_s is not None:
            rates = replace(rates, tpot_s=self.in_step_tpot_s)
        if self.in_step_slow_tpot_s is not None:
            rates = replace(rates, slow_tpot_s=self.in_step_slow_tpot_s)
        return rates
