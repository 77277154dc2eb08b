"""Tokens per second that a candidate cannot exceed, at a first glance.

From what all sweeps take with its layers elsewhere, and what its requests add wherever layers are.
Thousands of candidates share a few of each, so that most are put aside without a bound of their
own.
"""

from math import inf
from typing import NamedTuple

from tandem.planner.candidate import Candidate, Strategy
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.load import LaneLoad
from tandem.planner.prediction import Predictor
from tandem.planner.prompt_pace import Pace
from tandem.planner.question import Question
from tandem.planner.sweeps import Sweeps

_ROUNDED_UP = 1 + 1e-9


class _Weights(NamedTuple):
    """What weights ask of a sweep.

    Attributes:
        moved_s: for which those that are not lent take link or disk. loads_s: link. each_s: a load.
        lendable: layers that are loaded and may be lent.
        on_cpu: layers that the CPU computes, or their MLPs, also in sweeps with prompts. token_s:
            less than which none of these takes for a token.
    """

    moved_s: float
    loads_s: float
    each_s: float
    lendable: int
    on_cpu: int
    token_s: float


class _Stages(NamedTuple):
    """Of a sweep of all layers on the accelerator, all but attention: less than which none takes.

    Attributes:
        tokens: that are decoded, or of prompts. whole_s: of them all. layer_s: of it, a layer's.
    """

    tokens: int
    whole_s: float
    layer_s: float


class _Mixed(NamedTuple):
    """Sweeps that read some prompts, of which there is such a share."""

    share: float
    tokens: int
    whole_s: float
    layer_s: float


class _Requests(NamedTuple):
    """What requests in some places bring, whatever host and link there are.

    Attributes:
        decoding: in sweeps that read no prompt. chunk: with as much of prompts as the pace says.
        mixed: in those that read any.
    """

    pace: Pace
    decoding: _Stages
    chunk: _Stages
    mixed: tuple[_Mixed, ...]


_Places = tuple[Strategy, int, int, float, int, int, int]
"""Of requests, by which candidates share what these bring."""


class Glances:
    """At candidates of one question.

    Args:
        like: of a question that may have something in common with this one.
    """

    def __init__(
        self,
        question: Question,
        sweeps: Sweeps,
        predictor: Predictor,
        like: "Glances | None" = None,
    ) -> None:
        self._q, self._sweeps, self._predictor = question, sweeps, predictor
        self._weights: dict[Elsewhere, _Weights] = {}
        self._requests: dict[_Places, _Requests] = {}
        self._stages: dict[tuple[int, int], _Stages] = {}
        self._attentions: dict[_Places, float] = {}
        if like is not None and question.computes_as_fast_as(like._q):
            self._requests, self._stages = like._requests, like._stages
            if question.hardware.host == like._q.hardware.host:
                self._attentions = like._attentions
        self._of_lanes: dict[LaneLoad, float] = {}
        self._lasts: dict[int, tuple[float, float]] = {}

    def of(self, candidate: Candidate, *, lends: bool = False) -> tuple[float, float]:
        """No less than the first bound of a candidate that lends no layers, and of the same that
        does, however many; infinite where too little is known.

        Args:
            lends: whether the second one is of interest; else it is the first.
        """
        if self._q.objective == "latency":
            return inf, inf
        if candidate.halves:
            return inf, inf  # few, and what they do in a sweep is told apart by each bound
        elsewhere, has_cohorts = candidate.elsewhere, candidate.has_cohorts
        weights = self._weights_of(elsewhere)
        requests, attention_s = self._requests_of(candidate)
        alone_s, last_sweeps = weights.moved_s, 0.0
        if has_cohorts:
            last_sweeps, least_alone_s = self._last(candidate)
            alone_s = max(alone_s, least_alone_s)
        if has_cohorts and not candidate.device_rows:
            decode_s, least_s = alone_s, weights.moved_s  # sweeps may go through one layer
        else:
            decode_s = least_s = self._decode_s(elsewhere, weights, requests, attention_s)
        pace, on_cpu, token_s, steady_s = requests.pace, weights.on_cpu, weights.token_s, 0.0
        for share, tokens, computed_s, layer_s in requests.mixed:
            if on_cpu:
                computed_s += on_cpu * (tokens * token_s - layer_s)
            computed_s += attention_s
            steady_s += share * (computed_s if computed_s > least_s else least_s)
        mixed_s = max(least_s, attention_s + _computed_s(weights, requests.chunk))

        def bound(decode_s: float) -> float:
            """Args:
            decode_s: of a sweep that reads no prompt.
            """
            sweep_s = steady_s + (1 - pace.chunks.share) * decode_s
            drain_s = max(self._q.lengths.later_tokens * decode_s, last_sweeps * alone_s)
            edges = mixed_s, decode_s, drain_s
            return _ROUNDED_UP * self._predictor.job_bound(candidate, pace, sweep_s, edges)

        plain = bound(decode_s)
        if not lends:
            return plain, plain
        return plain, bound(self._lent_s(elsewhere, weights, requests, attention_s))

    def _decode_s(
        self, elsewhere: Elsewhere, weights: _Weights, requests: _Requests, attention_s: float
    ) -> float:
        """Less than which no sweep takes, of those that read no prompt where none is lent."""
        tokens, chain_s, layer_s = requests.decoding
        if weights.on_cpu:
            chain_s += weights.on_cpu * (self._sweeps.cpu_layer_s(elsewhere, tokens) - layer_s)
        return max(weights.moved_s, chain_s + attention_s)

    def _lent_s(
        self, elsewhere: Elsewhere, weights: _Weights, requests: _Requests, attention_s: float
    ) -> float:
        """Likewise, however many are lent: what is lent is not loaded, as many as make link and CPU
        equally long, or all.
        """
        tokens, stages_s, layer_s = requests.decoding
        chain_s = stages_s + attention_s
        more_s = self._sweeps.cpu_layer_s(elsewhere, tokens) - layer_s
        lent = float(weights.lendable)
        if more_s > 0:
            balanced = (weights.loads_s - chain_s) / (weights.each_s + more_s)
            lent = min(lent, max(0.0, balanced))
        return chain_s + lent * more_s

    def _weights_of(self, elsewhere: Elsewhere) -> _Weights:
        found = self._weights.get(elsewhere)
        if found is None:
            sweeps, least = self._sweeps, self._sweeps.least(elsewhere)
            on_cpu = elsewhere.whole_on_cpu + elsewhere.mlps_on_cpu
            found = self._weights[elsewhere] = _Weights(
                least.moved_s,
                least.loads_s,
                least.each_s,
                elsewhere.may_be_lent,
                on_cpu,
                sweeps.cpu_token_s(elsewhere) if on_cpu else 0.0,
            )
        return found

    def _requests_of(self, candidate: Candidate) -> tuple[_Requests, float]:
        """With less than which attention of rows that decode takes in no sweep."""
        rows = candidate.device_rows, candidate.host_rows, candidate.device_share
        sizes = candidate.step_tokens, candidate.prompts_here
        key = (candidate.strategy, *rows, candidate.passes, *sizes)
        found = self._requests.get(key)
        if found is None:
            found = self._requests[key] = self._made(candidate)
        attention_s = self._attentions.get(key)
        if attention_s is None:
            decoding = self._predictor.pace.decoding(candidate)
            attention_s = self._attention_s(self._predictor.loads.of(decoding).main)
            self._attentions[key] = attention_s
        return found, attention_s

    def _made(self, candidate: Candidate) -> _Requests:
        pace = self._predictor.pace.of(candidate)
        beside = self._predictor.pace.decoding(candidate).in_every_sweep()
        mixed = [
            _Mixed(share, *self._stages_of(beside, size)) for share, size in pace.chunks.weighted
        ]
        return _Requests(
            pace, self._stages_of(beside, 0), self._stages_of(beside, pace.chunk), tuple(mixed)
        )

    def _attention_s(self, lane: LaneLoad) -> float:
        found = self._of_lanes.get(lane)
        if found is None:
            found = self._of_lanes[lane] = self._sweeps.attention_s(lane)
        return found

    def _stages_of(self, beside: int, prompt_tokens: int) -> _Stages:
        """Args:
        beside: tokens that are decoded.
        """
        key = beside, prompt_tokens
        found = self._stages.get(key)
        if found is None:
            tokens, logits = beside + prompt_tokens, beside + (prompt_tokens > 0)
            stages_s = self._sweeps.stages_s(tokens, logits)
            found = _Stages(tokens, stages_s, self._sweeps.layer_s(tokens))
            self._stages[key] = found
        return found

    def _last(self, candidate: Candidate) -> tuple[float, float]:
        """Sweeps of its cohorts alone that decode the last rows, and less than which none takes."""
        found = self._lasts.get(candidate.host_rows)
        if found is None:
            hosted = candidate.hosted()
            sweeps = hosted.sweeps_per_hosted_token(self._q.model.num_layers)
            alone_s = self._sweeps.bound_s(Elsewhere(), self._predictor.loads.of(hosted))
            found = sweeps * self._q.lengths.later_tokens, alone_s
            self._lasts[candidate.host_rows] = found
        return found


def _computed_s(weights: _Weights, stages: _Stages) -> float:
    """Less than which all but attention does not take in a sweep that reads prompts."""
    if not weights.on_cpu:
        return stages.whole_s
    there_s = stages.tokens * weights.token_s
    return stages.whole_s + weights.on_cpu * (there_s - stages.layer_s)
