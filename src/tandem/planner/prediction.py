"""What a candidate would achieve: rate, time per token and to the first token, what limits it."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from tandem.planner.candidate import Candidate
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.fluid.virtual_time import SweepTime
from tandem.planner.places import num_places
from tandem.planner.prompt_pace import Pace, PromptPace
from tandem.planner.question import Lengths, Question
from tandem.planner.rates import Busy, Prediction, Rates
from tandem.planner.sweep_load import Loads, SweepLoad
from tandem.planner.sweep_times import SweepTimes
from tandem.planner.sweeps import Sweeps
from tandem.planner.timed_sweeps import sweep_times
from tandem.planner.utilisation import busy_shares, mean_sweep

TimeOf = Callable[[Elsewhere, SweepLoad], float]
Edges = tuple[float, float, float]
"""Seconds of what a job begins and ends with: of a sweep with as much of prompts as the pace says,
of one that reads none, and of the last rows' decoding.
"""
_ROUNDED_DOWN = 1 - 1e-9


class _LeastMixed(NamedTuple):
    """Less than which no sweeps take that read prompts: the usual one, one with as much of them as
    the pace says, and all in a steady state, by their share of the sweeps.
    """

    usual_s: float
    chunk_s: float
    steady_s: float


class Predictor:
    """Predicts candidates of one question.

    Attributes:
        loads: of their sweeps. pace: of prompts beside their rows.

    Args:
        like: of a question about the same requests, of which loads and paces are shared.
    """

    def __init__(self, question: Question, sweeps: Sweeps, like: "Predictor | None" = None) -> None:
        self._q, self._sweeps = question, sweeps
        tiled = question.tile_rows > 1
        alike = like is not None and tiled == (like._q.tile_rows > 1)
        if like is not None and alike and question.asks_the_same_as(like._q):
            self.loads, self.pace = like.loads, like.pace
        else:
            self.loads = Loads(question.lengths, tiled=tiled)
            self.pace = PromptPace(question, self.loads)
        precise = question.model.experts is None and not question.precision.quantized
        self._convex = precise and question.follows_lines
        self._bounds: dict[Candidate, Rates] = {}
        self._predictions: dict[Candidate, Prediction] = {}
        self._sweep_times: dict[Candidate, SweepTimes] = {}
        self._first_bounds: dict[Candidate, float] = {}
        self._late: set[Candidate] = set()
        self._rough_bounds: dict[Candidate, float] = {}
        self._closer_bounds: dict[Candidate, Rates] = {}
        self._least_mixed_of: dict[Candidate, _LeastMixed] = {}

    @property
    def lengths(self) -> Lengths:
        """The workload's."""
        return self._q.lengths

    @property
    def num_layers(self) -> int:
        """The model's."""
        return self._q.model.num_layers

    # --- bounds, ever closer and dearer -----------------------------------------------------------

    def first_bound(self, candidate: Candidate) -> float:
        """Tokens per second over the job if prompts' sweeps took no attention but that of rows that
        decode, or as much time as other sweeps through all layers: sooner found than any other
        bound.
        """
        if candidate not in self._first_bounds:
            self._first_bounds[candidate] = self._first_bound(candidate)
        return self._first_bounds[candidate]

    def _first_bound(self, candidate: Candidate) -> float:
        lengths, here, bound_s = self._q.lengths, candidate.elsewhere, self._sweeps.bound_s
        decode_s, decoding = self._decode_s(candidate, bound_s), self.pace.decoding(candidate)
        if self._q.objective == "latency":
            self._note_if_late(candidate, decode_s)
            ttft_s = lengths.prompt_tokens * self._sweeps.token_s(here)
            return lengths.generated_tokens / (ttft_s + lengths.later_tokens * decode_s)
        beside, least_s, load = decoding.in_every_sweep(), decode_s, self.loads.of(decoding)
        if here.lent:  # in sweeps with prompts nothing is
            least_s = bound_s(here.lending(0), load)
        if candidate.has_cohorts and not (candidate.device_rows or candidate.halves):
            # sweeps of a cohort alone wait for its attention, beside which others read prompts
            least_s = self._sweeps.least(here).moved_s
        attention_s = self._sweeps.attention_s(load.main)

        def mixed_s(tokens: int) -> float:
            computed_s = self._sweeps.computed_s(here, tokens + beside, beside + 1)
            return max(least_s, computed_s + attention_s)

        pace = self.pace.of(candidate)
        steady_s = sum(weight * mixed_s(tokens) for weight, tokens in pace.chunks.weighted)
        sweep_s = steady_s + (1 - pace.chunks.share) * decode_s
        self._note_if_late(candidate, sweep_s)
        drain_s = self._drain_s(candidate, decode_s, bound_s)
        edges = mixed_s(pace.chunk), decode_s, drain_s
        return self.job_bound(candidate, pace, sweep_s, edges)

    def is_surely_late(self, candidate: Candidate) -> bool:
        """Whether the times of the first bound break the bound on time per token already."""
        self.first_bound(candidate)
        return candidate in self._late

    def _note_if_late(self, candidate: Candidate, least_s: float) -> None:
        """If no sweep takes less than this."""
        if self._q.tpot_bound_s is not None:
            least_s *= candidate.sweeps_per_hosted_token(self._q.model.num_layers)
            if not self._q.allows(least_s * _ROUNDED_DOWN):
                self._late.add(candidate)

    def rough_bound(self, candidate: Candidate) -> float:
        """With as many prompts in each sweep as in the mean of those that read any, which takes no
        longer than the mean of theirs, time being convex in tokens; with as few as any of those
        where it is not: few tokens need few experts, weights in few bits are dequantized from some
        number of tokens on, and tiles make stairs. Closer than the first, and dearer.
        """
        if self._q.objective == "latency":
            return self.bound(candidate).tokens_per_s
        if candidate not in self._rough_bounds:
            self._rough_bounds[candidate] = self._rough_bound(candidate)
        return self._rough_bounds[candidate]

    def _rough_bound(self, candidate: Candidate) -> float:
        pace = self.pace.of(candidate)
        chunks, chunk, hosted = pace.chunks, pace.chunk, pace.on_host
        few = chunks.mean if self._convex else min(tokens for _, tokens in chunks.weighted)
        steady_s = mixed_s = self._mixed_s(candidate, few, hosted, self._sweeps.bound_s)
        if chunk != few:
            mixed_s = self._mixed_s(candidate, chunk, hosted, self._sweeps.bound_s)
        decode_s = self._decode_s(candidate, self._sweeps.bound_s)
        sweep_s = chunks.share * steady_s + (1 - chunks.share) * decode_s
        drain_s = self._drain_s(candidate, decode_s, self._sweeps.bound_s)
        return self.job_bound(candidate, pace, sweep_s, (mixed_s, decode_s, drain_s))

    def job_bound(self, candidate: Candidate, pace: Pace, sweep_s: float, edges: Edges) -> float:
        """Tokens per second over the job; longer times never make more of them.

        Args:
            sweep_s: of the mean sweep.
        """
        steady = pace.finished * self._q.lengths.generated_tokens / sweep_s
        edges_s = self._edges_s(candidate, pace, sweep_s, edges)
        return self._over_the_job(steady, edges_s)

    def bound(self, candidate: Candidate) -> Rates:
        """Rates if every sweep took its least possible time."""
        if candidate not in self._bounds:
            self._bounds[candidate] = self._rates(candidate, self._sweeps.bound_s)
        return self._bounds[candidate]

    def closer_bound(self, candidate: Candidate) -> Rates:
        """Likewise, but for sweeps that read no prompt, which are timed."""
        if candidate not in self._closer_bounds:
            self._closer_bounds[candidate] = self._rates(candidate, self._closer_s)
        return self._closer_bounds[candidate]

    def _closer_s(self, elsewhere: Elsewhere, load: SweepLoad) -> float:
        if load.main.device.chunk or load.main.host.chunk:
            return self._sweeps.bound_s(elsewhere, load)
        return self._sweeps.time(elsewhere, load).period_s

    # --- predictions ------------------------------------------------------------------------------

    def rates(self, candidate: Candidate) -> Rates:
        """Rates in virtual time."""
        return self._rates(candidate, lambda s, load: self._sweeps.time(s, load).period_s)

    def predict(self, candidate: Candidate) -> Prediction:
        """Rates in virtual time, and what limits them."""
        if candidate not in self._predictions:
            self._predictions[candidate] = self._predict(candidate)
        return self._predictions[candidate]

    def _predict(self, candidate: Candidate) -> Prediction:
        rates = self.rates(candidate)
        load = self.pace.decode_load(candidate)
        decode = self._sweeps.time(candidate.elsewhere, load)
        busy = partial(self._busy, candidate, decode, rates)
        return Prediction(rates, decode, self.bound(candidate).tokens_per_s, busy)

    def _busy(self, candidate: Candidate, decode: SweepTime, rates: Rates) -> Busy:
        steady = self._steady(candidate, decode, rates.prefill_share)
        steady = replace(steady, period_s=max(steady.period_s, rates.tpot_s))
        return busy_shares(self._q, steady)

    def sweep_s(self, candidate: Candidate, tokens: int = 0, *, hosted: bool = False) -> float:
        """Seconds of a sweep with just these rows, and so many tokens of prompts.

        Args:
            hosted: whether these go to the host.
        """
        filled = tokens > 0 and tokens >= self.pace.room(candidate)
        load = self.loads.of(candidate, tokens, hosted, filled=filled)
        return self._sweeps.time(candidate.elsewhere, load).period_s

    def least_s(self, candidate: Candidate, tokens: int = 0) -> float:
        """Less than which no sweep takes with so many tokens of prompts."""
        if not tokens:
            return self._decode_s(candidate, self._sweeps.bound_s)
        hosted = self.pace.of(candidate).on_host
        return self._mixed_s(candidate, tokens, hosted, self._sweeps.bound_s)

    def moved_s(self, candidate: Candidate) -> float:
        """Seconds for the weights that are brought in each sweep, whoever is in it."""
        return self._sweeps.least(candidate.elsewhere).moved_s

    def places(self, candidate: Candidate) -> int:
        """Requests that an engine lets run at once."""
        return num_places(self._q, candidate)

    def decode_share(self, candidate: Candidate) -> float:
        """Of the sweeps, those that read no prompt."""
        if self._q.objective == "latency":
            return 1.0
        return 1.0 - self.pace.of(candidate).chunks.share

    def extrapolated(self, candidate: Candidate) -> tuple[str, ...]:
        """What of it lies outside the measurements, one line each."""
        if self._q.follows_rates:
            return ()
        from tandem.planner.measured.extrapolation import extrapolations

        chunk, demands = self.pace.of(candidate).chunk, self._sweeps.demands
        return tuple(extrapolations(self._q, candidate, chunk, demands))

    def request_s(self, rates: Rates) -> float:
        """From the first token's turn to the last token of a mean request, in the slower lane."""
        return rates.ttft_s + self._q.lengths.later_tokens * rates.worst_tpot_s

    def main_request_s(self, rates: Rates) -> float:
        """Likewise, of one that every sweep serves."""
        return rates.ttft_s + self._q.lengths.later_tokens * rates.tpot_s

    def job_s(self, rates: Rates, arriving: Rates | None = None) -> float:
        """All requests of the workload, from the first arrival to the last token.

        Rows fill up at the pace of their prompts, then requests follow each other at the steady
        rate; the last one that begins decodes to its end.

        Args:
            arriving: what the last request sees if requests come over time; None: as the others.
        """
        lengths = self._q.lengths
        work_s = lengths.requests * lengths.generated_tokens / rates.tokens_per_s + rates.edges_s
        return max(work_s, lengths.duration_s + self.request_s(arriving or rates))

    def sweep_times(self, candidate: Candidate) -> SweepTimes:
        """Of sweeps with other rows than a candidate's."""
        if candidate not in self._sweep_times:
            found = sweep_times(self._q, self._sweeps, self.pace, self.loads, candidate)
            self._sweep_times[candidate] = found
        return self._sweep_times[candidate]

    # --- rates, by whatever a sweep's time is -----------------------------------------------------

    def _rates(self, candidate: Candidate, time_of: TimeOf) -> Rates:
        if self._q.objective == "latency":
            return self._alone(candidate, time_of)
        lengths, cohort = self._q.lengths, candidate.has_cohorts
        pace = self.pace.of(candidate)
        decode_s = self._decode_s(candidate, time_of)
        mixed_s, steady_s = self._mixed_times(candidate, pace, time_of)
        share = pace.chunks.share
        sweep_s = self._with_leaving_s(candidate, share * steady_s + (1 - share) * decode_s)
        steady = pace.finished * lengths.generated_tokens / sweep_s
        drain_s = self._drain_s(candidate, decode_s, time_of)
        edges_s = self._edges_s(candidate, pace, sweep_s, (mixed_s, decode_s, drain_s))
        return Rates(
            tokens_per_s=steady,
            tpot_s=sweep_s,
            slow_tpot_s=self._in_cohorts_s(candidate, pace, sweep_s, time_of) if cohort else None,
            ttft_s=math.ceil(lengths.prompt_tokens / pace.chunk) * mixed_s,
            prefill_share=share,
            edges_s=edges_s,
            job_tokens_per_s=self._over_the_job(steady, edges_s),
        )

    def _in_cohorts_s(
        self, candidate: Candidate, pace: Pace, sweep_s: float, time_of: TimeOf
    ) -> float:
        """Between tokens of a request in a cohort; of halves, whose tokens' own sweeps prompts may
        overfill, with what another one reads meanwhile.
        """
        layers = self._q.model.num_layers
        sweeps = candidate.sweeps_per_hosted_token(layers)
        token_s = sweeps * sweep_s
        most = candidate.sweeps_beside_prompts(layers) - sweeps
        if most:
            tokens = sweeps * pace.finished / pace.decoding * self._q.lengths.prompt_tokens
            more = min(max(tokens / self.pace.room(candidate) - sweeps, 0.0), most)
            hosted = not candidate.reads_here
            load = self.loads.of(candidate.between_tokens(), pace.chunk, host_chunk=hosted)
            token_s += more * time_of(candidate.elsewhere, load) if more else 0.0
        return token_s

    def _with_leaving_s(self, candidate: Candidate, sweep_s: float) -> float:
        """Of a sweep in the mean, no shorter than prompts' KV takes on its way to the host: copies
        run beside it, and whose queries come behind one wait once, for a part of it.
        """
        if not candidate.reads_here:
            return sweep_s
        pace = self.pace.of(candidate)
        leaving_s = pace.finished * pace.on_host * self._sweeps.prompt_leaves_s
        return max(sweep_s, leaving_s)

    def _drain_s(self, candidate: Candidate, decode_s: float, time_of: TimeOf) -> float:
        """The last rows' decoding; of cohorts in sweeps of their own, if the others have ended."""
        sweeps = self._q.lengths.later_tokens
        if not candidate.has_cohorts:
            return sweeps * decode_s
        hosted = candidate.hosted()
        hosted_s = self._decode_s(hosted, time_of)
        hosted_s *= hosted.sweeps_per_hosted_token(self._q.model.num_layers)
        return max(sweeps * decode_s, sweeps * hosted_s)

    def _edges_s(self, candidate: Candidate, pace: Pace, sweep_s: float, edges: Edges) -> float:
        """Beyond the steady state, to fill all rows with prompts and to decode the last ones."""
        rows, (mixed_s, decode_s, drain_s) = candidate.rows, edges
        reading, waiting = pace.filling
        fill_s = reading * mixed_s + waiting * decode_s
        # a few rows that end faster alone than beside others gain nothing by it here
        return max(0.0, fill_s + drain_s - rows * sweep_s / pace.finished)

    def _over_the_job(self, tokens_per_s: float, edges_s: float) -> float:
        """Requests that come over time fill and empty no rows at once."""
        lengths = self._q.lengths
        if lengths.duration_s:
            return tokens_per_s
        tokens = lengths.requests * lengths.generated_tokens
        return tokens / (tokens / tokens_per_s + edges_s)

    def _alone(self, candidate: Candidate, time_of: TimeOf) -> Rates:
        """One request after the other."""
        lengths = self._q.lengths
        chunk = self.pace.chunk_alone(candidate)
        chunks = math.ceil(lengths.prompt_tokens / chunk)
        ttft_s = chunks * self._mixed_s(candidate.idle(), chunk, candidate.host_rows, time_of)
        tpot_s = self._decode_s(candidate, time_of)
        total_s = ttft_s + lengths.later_tokens * tpot_s
        share = chunks / (chunks + lengths.later_tokens)
        rate = lengths.generated_tokens / total_s
        return Rates(rate, tpot_s, None, ttft_s, share, 0.0, rate)

    def _mixed_times(
        self, candidate: Candidate, pace: Pace, time_of: TimeOf
    ) -> tuple[float, float]:
        """Seconds of a sweep with `pace.chunk` tokens of prompts, and the mean over `pace.chunks`.

        One of them is timed; the others differ from it as their bounds do.
        """
        least, chunks, slower = self._least_mixed(candidate, pace), pace.chunks, 1.0
        if time_of not in (self._sweeps.bound_s, self._closer_s):
            timed_s = self._mixed_s(candidate, chunks.usual, pace.on_host, time_of)
            slower = timed_s / least.usual_s
        return slower * least.chunk_s, slower * least.steady_s / chunks.share

    def _least_mixed(self, candidate: Candidate, pace: Pace) -> _LeastMixed:
        """Asked for again by each closer bound, and by the prediction."""
        found = self._least_mixed_of.get(candidate)
        if found is None:
            chunks, hosted, bound_s = pace.chunks, pace.on_host, self._sweeps.bound_s
            sizes = chunks.usual, pace.chunk, *(size for _, size in chunks.weighted)
            times = {size: self._mixed_s(candidate, size, hosted, bound_s) for size in set(sizes)}
            steady_s = sum(weight * times[size] for weight, size in chunks.weighted)
            found = _LeastMixed(times[chunks.usual], times[pace.chunk], steady_s)
            self._least_mixed_of[candidate] = found
        return found

    def _decode_s(self, candidate: Candidate, time_of: TimeOf) -> float:
        return time_of(candidate.elsewhere, self.pace.decode_load(candidate))

    def _mixed_s(self, candidate: Candidate, chunk: int, hosted: float, time_of: TimeOf) -> float:
        """A sweep with a chunk of a prompt, whose KV goes to the host in a share of the cases."""
        here, loads = candidate.elsewhere, self.pace.loads(candidate, chunk, hosted)
        return sum([weight * time_of(here, load) for weight, load in loads])

    def _steady(self, candidate: Candidate, decode: SweepTime, prefill_share: float) -> SweepTime:
        """The mean of the sweeps that decode only and of those that read prompts as well."""
        if self._q.objective == "latency":
            return decode
        pace = self.pace.of(candidate)
        parts = [(1 - prefill_share, decode)]
        for share, chunk in pace.chunks.timed:
            share *= prefill_share / pace.chunks.share
            for weight, load in self.pace.loads(candidate, chunk, pace.on_host):
                parts.append((share * weight, self._sweeps.time(candidate.elsewhere, load)))
        return mean_sweep(parts)
