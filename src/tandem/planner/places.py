"""How many requests an engine lets run so that as many decode as are planned."""

import math

from tandem.planner.candidate import Candidate
from tandem.planner.question import Question


def num_places(question: Question, candidate: Candidate) -> int:
    """Those that decode, and one whose prompt is read meanwhile, if that is so about half of the
    time.
    """
    rows = candidate.rows
    return rows if candidate.device_share else places_of(question, rows, candidate.step_tokens)


def places_of(question: Question, rows: int, step_tokens: int = 0) -> int:
    """Likewise, of requests that each lie in one tier.

    Args:
        step_tokens: of a candidate.
    """
    lengths = question.lengths
    if rows <= 1 or rows >= question.most_rows(step_tokens):
        return rows
    reading = math.ceil(lengths.prompt_tokens / question.step_of(step_tokens))
    return rows + (2 * rows * reading >= reading + lengths.decode_sweeps)
