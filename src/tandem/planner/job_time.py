"""When the last request of a job ends that are all there at once, and how their tokens come."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tandem.plan.online import OnlinePlan
from tandem.planner.candidate import Candidate
from tandem.planner.held_blocks import any_grows
from tandem.planner.passing import LEAVING_SWEEPS, passing_sweeps
from tandem.planner.prediction import Predictor
from tandem.planner.question import Question
from tandem.planner.wave_parts import part_of
from tandem.planner.waves import Home, LivedJob, Wave
from tandem.spec.workload import RequestShape

_GENERATIONS, _LEAST_LIVED = 12, 400
"""Requests for each place that are lived through, and in all where places are few; a longer job
goes on as their second half: how many of those that begin together fall into it is then a small
part of it.
"""


@dataclass(frozen=True, slots=True)
class JobInWaves:
    """What an engine makes of a job.

    Attributes:
        job_s: until the last of all requests has ended.
        tpot_s: between tokens of a request, in the mean over those that every sweep serves.
        slow_tpot_s: likewise, over those in cohorts. None: there are none, as of the others.
        slow_share: of the requests, those in cohorts.
    """

    job_s: float
    tpot_s: float | None
    slow_tpot_s: float | None
    slow_share: float

    @property
    def mean_tpot_s(self) -> float:
        """Over all requests."""
        fast_s, slow_s = self.tpot_s or 0.0, self.slow_tpot_s or 0.0
        return (1 - self.slow_share) * fast_s + self.slow_share * slow_s


def job_in_waves(
    question: Question,
    predictor: Predictor,
    candidate: Candidate,
    plan: OnlinePlan,
    share: float = 1.0,
) -> JobInWaves:
    """By an engine that is told this plan.

    Args:
        share: of the usual work that is spent on it, to compare many.
    """
    lengths = question.lengths
    shapes = lengths.shapes or (lengths.usual,) * lengths.requests
    places = plan.max_num_seqs
    generations = max(_GENERATIONS, math.ceil(_LEAST_LIVED / places))
    most = 2 * math.ceil(generations / 2) * places
    first = shapes[:most]
    wave = _wave(question, candidate, plan, reserves=any_grows(first, plan.block_size))
    sweep_s = predictor.sweep_times(candidate)
    part, those = part_of(wave, first, share)
    lived = part.live_through(those, sweep_s)
    job_s = lived.job_s
    if len(shapes) > most:
        # by when they begin: how long the last ones outlast the others is no part of a pace
        job_s += (len(shapes) - most) * lived.half_s / (most // 2)
    fast, slow = _tpots_s(lived, those, candidate)
    return JobInWaves(
        job_s,
        sum(fast) / len(fast) if fast else None,
        sum(slow) / len(slow) if slow else None,
        len(slow) / max(1, len(fast) + len(slow)),
    )


def _tpots_s(
    lived: LivedJob, shapes: Sequence[RequestShape], candidate: Candidate
) -> tuple[list[float], list[float]]:
    """Of requests with more than a token, without cohorts and in them."""
    found: tuple[list[float], list[float]] = [], []
    lanes = found if candidate.has_cohorts else (found[0], found[0])  # by where they ended
    for decoding_s, home, shape in zip(lived.decoding_s, lived.homes, shapes, strict=True):
        later = shape.generated_tokens - 1
        if later > 0:
            lanes[home].append(decoding_s / later)
    return found


def _wave(question: Question, candidate: Candidate, plan: OnlinePlan, *, reserves: bool) -> Wave:
    places, in_sweeps = plan.max_num_seqs, candidate.in_every_sweep()
    per_token = float(candidate.sweeps_beside_prompts(question.model.num_layers))
    on_device, on_host = plan.max_device_seqs or places, plan.max_host_seqs
    device, host = plan.device_blocks, plan.host_blocks
    if candidate.device_share:  # in both at once: one pool
        device, host, on_device, on_host = 0, device + host, 0, places
    elif plan.kv_placement == "host":
        on_device, on_host = 0, places
    room = max(1, plan.max_num_batched_tokens - in_sweeps)
    per_prompt = leaving = 0.0
    if candidate.reads_here:
        sweeps = passing_sweeps(question.lengths.prompt_tokens, room)
        here = candidate.prompts_here
        if not candidate.device_rows:  # all of the pool is theirs, and weights may leave more of it
            prompt_blocks = math.ceil(question.lengths.prompt_tokens / plan.block_size)
            here = max(here, plan.device_blocks // prompt_blocks)
        per_prompt, leaving = sweeps / here, float(LEAVING_SWEEPS)
    return Wave(
        homes=(
            Home(device, on_device, reserves),
            Home(host, on_host, False, per_token, per_prompt, leaving),
        ),
        places=places,
        block_size=plan.block_size,
        prompt_tokens=room,
    )
