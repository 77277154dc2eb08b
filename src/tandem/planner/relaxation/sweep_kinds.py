"""The kinds of sweeps that a steady state is made of, for whole ranges of rows.

A sweep of more tokens takes longer, wherever the weights lie. So a range is bounded by shares and
sizes of prompts that all its members have at least.
"""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from tandem.planner.chunks import chunk_tokens, chunks_per_sweep, is_one_chunk
from tandem.planner.question import Question


class SweepKind(NamedTuple):
    """One kind of sweep.

    Attributes:
        share: of all sweeps, at the least of the range; of one request's, their number.
        per_served: of it, at the least anywhere in the range, per token that a sweep serves.
        decodes: whether the rows decode in it; else it reads a prompt alone.
        prompt_tokens: that it reads.
    """

    share: float
    per_served: float
    decodes: bool
    prompt_tokens: int


class Span(NamedTuple):
    """Tokens that a sweep decodes: the least and the most of a range.

    Attributes:
        served: in the mean, of rows that pass through in several sweeps as well.
        decoding: in every sweep.
    """

    least_served: float
    most_served: float
    least_decoding: int
    most_decoding: int


def alone_kinds(question: Question, step_tokens: int) -> list[SweepKind]:
    """Of one request from its prompt to its end."""
    lengths = question.lengths
    chunk = chunk_tokens(0.0, lengths.prompt_tokens, question.step_of(step_tokens))
    chunks = -(-lengths.prompt_tokens // chunk)
    return [
        SweepKind(chunks, chunks, False, chunk),
        SweepKind(lengths.later_tokens, lengths.later_tokens, True, 0),
    ]


def steady_kinds(
    question: Question, span: Span, step_tokens: int, least_read: float = 1.0
) -> list[list[SweepKind]]:
    """Of a steady state.

    Prompts are spread over sweeps in one of two ways, by their number: if both occur in the range,
    each has its kinds.

    Args:
        least_read: share of the prompts that are read in any case. Fewer shorten sweeps, so that a
            bound on them is kept more easily; for a rate it is no worse to take it for 1, since
            fewer prompts let fewer tokens follow.
    """
    lengths, limit = question.lengths, question.step_of(step_tokens)
    prompt = lengths.prompt_tokens
    per_token = prompt / lengths.decode_sweeps
    least, most = least_read * span.least_served * per_token, span.most_served * per_token
    tight, wide = max(1, limit - span.most_decoding), max(1, limit - span.least_decoding)
    found: list[list[SweepKind]] = []
    if is_one_chunk(most, prompt, tight):
        fewest, largest = chunk_tokens(least, prompt, tight), chunk_tokens(most, prompt, wide)
        share = min(1.0, least / largest)
        per_served = min(1 / span.most_served, per_token / largest)
        rest = max(0.0, 1 - most / fewest) / span.most_served
        found.append(
            [SweepKind(1 - share, rest, True, 0), SweepKind(share, per_served, True, fewest)]
        )
    if not is_one_chunk(least, prompt, wide):
        found.append(_several(question, span, least, most, tight, wide))
    return found


def _several(
    question: Question, span: Span, least: float, most: float, tight: int, wide: int
) -> list[SweepKind]:
    """Where sweeps read several prompts, in shares of all sweeps.

    Time is convex in tokens, so that the mean of several takes at most theirs; but not where
    there are experts, nor where weights in few bits are dequantized from some number on.
    """
    prompt = question.lengths.prompt_tokens
    chunks = chunks_per_sweep(least, prompt, wide)
    weighted = [(weight, min(size, tight)) for weight, size in chunks.weighted]
    decode = 1 - chunks.share
    if question.model.experts is not None or question.precision.quantized:
        mixed = [SweepKind(weight, 0.0, True, size) for weight, size in weighted]
        return [SweepKind(decode, 0.0, True, 0), *mixed]
    mean = sum(weight * size for weight, size in weighted) / chunks.share
    none = math.exp(-most / prompt)
    return [
        SweepKind(decode, none / span.most_served, True, 0),
        SweepKind(chunks.share, (1 - none) / span.most_served, True, int(mean)),
    ]


class WeightedKinds(NamedTuple):
    """Kinds of sweeps as a time per token weighs them, both ways, each with all longer ones.

    Attributes:
        prompt_tokens: of each kind, ascending.
        by_share, by_token: weights of a kind and of those that read more.
    """

    prompt_tokens: tuple[int, ...]
    by_share: tuple[float, ...]
    by_token: tuple[float, ...]


def weighted_kinds(kinds: Sequence[SweepKind], served: float) -> WeightedKinds:
    """Of sweeps that serve so many tokens at most."""
    longest_first = sorted(kinds, key=lambda kind: -kind.prompt_tokens)
    by_share = accumulate(kind.share / served for kind in longest_first)
    by_token = accumulate(kind.per_served for kind in longest_first)
    tokens = tuple(kind.prompt_tokens for kind in reversed(longest_first))
    return WeightedKinds(tokens, tuple(by_share)[::-1], tuple(by_token)[::-1])


def least_ratio(some: Sequence[WeightedKinds], others: Sequence[WeightedKinds]) -> float:
    """How many times the others' time per token any of some takes at least, or 1 if that is not
    known: if each is weighed so much more, and reads no fewer tokens in any kind.
    """
    return min(max([1.0, *(_ratio(one, other) for other in others)]) for one in some)


def _ratio(one: WeightedKinds, other: WeightedKinds) -> float:
    pairs = zip(one.prompt_tokens, other.prompt_tokens, strict=False)
    if len(one.by_share) != len(other.by_share) or any(mine < its for mine, its in pairs):
        return 1.0
    return min(
        mine / its
        for weights, known in ((one.by_share, other.by_share), (one.by_token, other.by_token))
        for mine, its in zip(weights, known, strict=True)
        if its
    )
