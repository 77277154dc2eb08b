"""How many more requests of prompts of one token may run than are counted, while all are young.

Plans count requests by what they hold in the mean (`held_blocks`). Over their lives they drift:
those that run together are younger for a while, then older, and then memory has no room for all of
them. Where no more than the counted ones may run, times at which they are young do not make up for
those at which fewer run: memory is partly empty then. So as many may as fill it while all are so
much younger than in the mean that it is seldom so; what they hold decides how many do. More still
where who is preempted is copied to the host (`plan/preempted.py`).
"""

import math

from tandem.plan.preempted import copied_unasked
from tandem.planner.candidate import Candidate
from tandem.planner.footprint import Footprint
from tandem.planner.held_blocks import may_run_more
from tandem.planner.prediction import Predictor
from tandem.planner.question import Question

_YOUNGER = 2.0
"""Standard deviations of what all hold together, were they independent."""
_COPIED = 0.5
"""Of the pool, likewise at least where who is preempted is copied, which costs others next to
nothing: 1.5 times as many as it holds in the mean. Twice as many made less.
"""
_TRIED = 8
"""Numbers of them, at most: beyond a tile's edge, more rows may be slower than none."""


def more_while_young(
    question: Question, footprint: Footprint, predictor: Predictor, candidate: Candidate
) -> int:
    """Requests on the accelerator beyond those that are counted.

    None where they hold next to the same at any age, where a time per token is to be kept, which
    those break that are preempted when all have grown, where they lie in both tiers, and beside
    prompts of more than a token, which those would read again.
    """
    rows, held = candidate.device_rows, footprint.held
    if rows <= 1 or candidate.device_share or not may_run_more(question, held):
        return 0
    younger = _YOUNGER * held.deviation * math.sqrt(rows)
    if younger < held.mean:
        return 0
    blocks = footprint.device_blocks(candidate)
    if _copies(question, candidate):
        younger = max(younger, blocks * _COPIED)
    fit = int((blocks + younger) / held.mean)
    room = question.most_rows(candidate.step_tokens) - predictor.places(candidate)
    return _that_pays(predictor, candidate, min(fit - rows, room))


def _copies(question: Question, candidate: Candidate) -> bool:
    """Whether who is preempted on the accelerator is copied, which costs others next to nothing."""
    return copied_unasked(
        candidate.max_device_seqs,
        prompts_on_device=candidate.reads_here,
        converts=question.precision.host_kv is not None,
    )


def _that_pays(predictor: Predictor, candidate: Candidate, most: int) -> int:
    """Of up to so many more rows, those with which sweeps make the most tokens per second."""

    def tokens_per_s(more: int) -> float:
        with_them = candidate._replace(device_rows=candidate.device_rows + more)
        return predictor.rates(with_them).tokens_per_s

    step = max(1, math.ceil(most / _TRIED))
    return max((0, *range(most, 0, -step)), key=tokens_per_s)
