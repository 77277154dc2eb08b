"""How many requests an engine lets run so that as many decode as are planned."""

import math

from tandem.planner.candidate import Candidate
from tandem.planner.question import Question


def num_places(question: Question, candidate: Candidate) -> int:
    """Those that decode, and one whose prompt is read meanwhile, if that is so about half of the
    time.
    """
    rows, lengths, step = candidate.rows, question.lengths, candidate.step_tokens
    if rows <= 1 or candidate.device_share or rows >= question.most_rows(step):
        return rows
    reading = math.ceil(lengths.prompt_tokens / question.step_of(step))
    return rows + (2 * rows * reading >= reading + lengths.decode_sweeps)
