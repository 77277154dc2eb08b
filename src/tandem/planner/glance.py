"""Tokens per second that a candidate cannot exceed, at a first glance.

From what all sweeps take with its layers elsewhere, and what its requests add wherever layers are.
Thousands of candidates share a few of each, so that most are put aside without a bound of their
own.
"""

from math import inf
from typing import NamedTuple

from tandem.planner.candidate import Candidate, Strategy
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.prediction import Predictor
from tandem.planner.prompt_pace import Pace
from tandem.planner.question import Question
from tandem.planner.sweeps import Sweeps

_ROUNDED_UP = 1 + 1e-9


class _Least(NamedTuple):
    """Less than which no sweep takes with some layers elsewhere, as in `LeastSweep`; and no token
    of a prompt.
    """

    chain_s: float
    whole_s: float
    with_prompts_s: float
    moved_s: float
    token_s: float


class _Requests(NamedTuple):
    """What requests in some places bring.

    Attributes:
        attention_s: less than which theirs takes in no sweep. beside: tokens that each decodes.
        last_sweeps: of cohorts alone, to decode the last rows. alone_s: less than which none of
            these takes, wherever layers are.
    """

    pace: Pace
    attention_s: float
    beside: int
    last_sweeps: float
    alone_s: float


class Glances:
    """At candidates of one question."""

    def __init__(self, question: Question, sweeps: Sweeps, predictor: Predictor) -> None:
        self._q, self._sweeps, self._predictor = question, sweeps, predictor
        self._least: dict[Elsewhere, _Least] = {}
        self._requests: dict[tuple[Strategy, int, int, float, int, int], _Requests] = {}
        self._lasts: dict[int, tuple[float, float]] = {}

    def of(self, candidate: Candidate, *, lends: bool = False) -> float:
        """No less than the first bound of a candidate that lends no layers; infinite where too
        little is known.

        Args:
            lends: of the same that does, however many.
        """
        if self._q.objective == "latency":
            return inf
        if candidate.halves:
            return inf  # few, and what they have to do in a sweep is told apart by each bound
        here, requests = self._least_of(candidate), self._requests_of(candidate)
        pace, attention_s, beside, last_sweeps, alone_s = requests
        alone_s = max(here.moved_s, alone_s)
        mixed_least_s = max(here.with_prompts_s, here.chain_s + attention_s)
        if last_sweeps and not candidate.device_rows:
            mixed_least_s = alone_s  # sweeps may go through one layer
        decode_s = mixed_least_s
        if lends:
            decode_s = max(here.whole_s, here.chain_s + attention_s)
        token_s, steady_s = here.token_s, 0.0
        for weight, tokens in pace.chunks.weighted:
            computed_s = (tokens + beside) * token_s + attention_s
            steady_s += weight * (computed_s if computed_s > mixed_least_s else mixed_least_s)
        sweep_s = steady_s + (1 - pace.chunks.share) * decode_s
        mixed_s = max(mixed_least_s, (pace.chunk + beside) * token_s + attention_s)
        drain_s = max(self._q.lengths.later_tokens * decode_s, last_sweeps * alone_s)
        predictor = self._predictor
        return _ROUNDED_UP * predictor.job_bound(candidate, pace, sweep_s, mixed_s, drain_s)

    def _least_of(self, candidate: Candidate) -> _Least:
        elsewhere = candidate.elsewhere
        found = self._least.get(elsewhere)
        if found is None:
            token_s = self._sweeps.token_s(elsewhere)
            found = self._least[elsewhere] = _Least(*self._sweeps.least(elsewhere), token_s)
        return found

    def _requests_of(self, candidate: Candidate) -> _Requests:
        rows = candidate.device_rows, candidate.host_rows, candidate.device_share
        key = (candidate.strategy, *rows, candidate.passes, candidate.step_tokens)
        found = self._requests.get(key)
        if found is None:
            attention_s = self._sweeps.attention_s(self._predictor.loads.of(candidate))
            pace = self._predictor.pace.of(candidate)
            last = self._last(candidate)
            found = _Requests(pace, attention_s, candidate.in_every_sweep(), *last)
            self._requests[key] = found
        return found

    def _last(self, candidate: Candidate) -> tuple[float, float]:
        """Sweeps of its cohorts alone that decode the last rows, and less than which none takes."""
        if not candidate.has_cohorts:
            return 0.0, 0.0
        found = self._lasts.get(candidate.host_rows)
        if found is None:
            hosted = candidate.hosted()
            sweeps = hosted.sweeps_per_hosted_token(self._q.model.num_layers)
            alone_s = self._sweeps.bound_s(Elsewhere(), self._predictor.loads.of(hosted))
            found = sweeps * self._q.lengths.later_tokens, alone_s
            self._lasts[candidate.host_rows] = found
        return found
