"""How many requests decode in a sweep, and how many end, if nobody waits for others' prompts: no
plan has more of either.
"""

import math
from typing import NamedTuple

from tandem.planner.places import places_of
from tandem.planner.question import Question
from tandem.planner.relaxation.rows import Rows


class Between(NamedTuple):
    """Numbers per sweep, of a range of rows: no member's lies outside."""

    least: float
    most: float


class Served(NamedTuple):
    """Tokens of a sweep if all places decoded, of a range of rows.

    Attributes:
        least, most: at its ends. through: with most that take part in all layers, and least others,
            of whom each gets the fewest.
    """

    least: float
    most: float
    through: float


def decoding_per_sweep(question: Question, rows: Rows) -> Between:
    """Of the rows that take part in all layers: a place whose prompt is read decodes nothing."""
    through = rows.through
    if question.objective == "latency":
        return Between(through.least, through.most)
    decoding = question.lengths.decode_sweeps
    shortest, longest = (_reading(question, rows, each) for each in (through.least, through.most))
    return Between(
        through.least * decoding / (decoding + longest),
        through.most * decoding / (decoding + shortest),
    )


def ended_per_sweep(question: Question, rows: Rows, served: Served) -> Between:
    """Whoever ends is followed by one that reads its prompt first: its place decodes nothing in as
    many sweeps as that takes. And sweeps read no more than they have room for.

    With some requests of few sweeps per token and some of many, fewer end than if all had the mean
    number, so that it bounds them.
    """
    lengths, step = question.lengths, question.step_of(rows.step_tokens)
    decoding, later = decoding_per_sweep(question, rows), lengths.later_tokens
    wide, tight = step - math.floor(decoding.least), max(1, step - math.ceil(decoding.most))
    fewest = rows.through.least + rows.cohort.least
    sweeps_per_token = (rows.through.most + rows.cohort.least) / served.through
    places = places_of(question, rows.through.most + rows.cohort.most, rows.step_tokens)
    place_sweeps = sweeps_per_token * later + math.ceil(lengths.prompt_tokens / wide)
    longest = math.ceil(lengths.prompt_tokens / tight)
    return Between(
        min(
            served.least / lengths.decode_sweeps,
            1 / (later / served.least + longest / fewest),
            tight / lengths.prompt_tokens,
        ),
        min(
            served.most / lengths.decode_sweeps,
            places / place_sweeps,
            wide / lengths.prompt_tokens,
        ),
    )


def _reading(question: Question, rows: Rows, decoding: int) -> int:
    """Sweeps in which a prompt is read beside so many that decode."""
    room = max(1, question.step_of(rows.step_tokens) - decoding)
    return math.ceil(question.lengths.prompt_tokens / room)
