"""Prompts of requests on the host that are read on the accelerator, from where their KV leaves.

Each takes a place there from the sweep that begins to read it until its copy has arrived. The copy
is submitted with the sweep after the one that ends the prompt, and runs beside it. When it has
arrived, the sweep after that has been submitted already, and the next one finds the place free.
"""

import math

from tandem.planner.candidate import Candidate
from tandem.planner.question import Question

LEAST_PROMPTS_HERE = 2
"""One is read while the one before it leaves."""

LEAVING_SWEEPS = 2
"""In which a request that has been read decodes nothing, and its place holds no other's prompt."""

_TO_SPARE = 1.25
"""Times the prompts that are there in the mean: requests end by chance, or several at once."""


def passing_sweeps(prompt_tokens: float, room: int) -> int:
    """For which a prompt has its place.

    Args:
        room: tokens of prompts in a sweep.
    """
    return math.ceil(prompt_tokens / room) + LEAVING_SWEEPS


def enough_prompts_here(question: Question, candidate: Candidate) -> int:
    """Places on the accelerator for prompts of a candidate's requests on the host, so that these
    hardly ever wait for one; no more than a step's tokens can fill.
    """
    lengths = question.lengths
    room = max(1, question.step_of(candidate.step_tokens) - candidate.in_every_sweep())
    sweeps = passing_sweeps(lengths.prompt_tokens, room)
    token_sweeps = candidate.sweeps_per_hosted_token(question.model.num_layers)
    ended = candidate.host_rows / (token_sweeps * lengths.decode_sweeps + LEAVING_SWEEPS)
    wanted = math.ceil(_TO_SPARE * sweeps * ended)
    return max(LEAST_PROMPTS_HERE, min(wanted, math.ceil(sweeps * room / lengths.prompt_tokens)))
