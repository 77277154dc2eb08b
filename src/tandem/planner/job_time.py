"""When the last request of a job ends that are all there at once."""

import math

from tandem.plan.online import OnlinePlan
from tandem.planner.candidate import Candidate
from tandem.planner.held_blocks import HeldBlocks
from tandem.planner.passing import LEAVING_SWEEPS, passing_sweeps
from tandem.planner.prediction import Predictor
from tandem.planner.question import Question
from tandem.planner.wave_parts import part_of
from tandem.planner.waves import Home, Wave
from tandem.spec.workload import RequestShape

_GENERATIONS = 12
"""Requests for each place that are lived through; a longer job goes on as their second half."""


def job_in_waves_s(
    question: Question,
    predictor: Predictor,
    candidate: Candidate,
    plan: OnlinePlan,
    share: float = 1.0,
) -> float:
    """Seconds that an engine takes which is told this plan.

    Args:
        share: of the usual work that is spent on it, to compare many.
    """
    lengths = question.lengths
    usual = RequestShape(round(lengths.prompt_tokens), max(1, round(lengths.generated_tokens)))
    shapes = lengths.shapes or (usual,) * lengths.requests
    wave, sweep_s = _wave(question, candidate, plan), predictor.sweep_times(candidate)
    most = 2 * (_GENERATIONS // 2) * plan.max_num_seqs
    part, those = part_of(wave, shapes[:most], share)
    if len(shapes) <= most:
        return part.job_s(those, sweep_s)
    # by when they begin: how long the last ones outlast the others is no part of a pace
    job_s, half_s = part.job_and_half_s(those, sweep_s)
    return job_s + (len(shapes) - most) * half_s / (most // 2)


def _wave(question: Question, candidate: Candidate, plan: OnlinePlan) -> Wave:
    places, in_sweeps = plan.max_num_seqs, candidate.in_every_sweep()
    per_token = float(candidate.sweeps_per_hosted_token(question.model.num_layers))
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
            Home(device, on_device, HeldBlocks.of(question.lengths, plan.block_size).grows),
            Home(host, on_host, False, per_token, per_prompt, leaving),
        ),
        places=places,
        block_size=plan.block_size,
        prompt_tokens=room,
    )
