"""Correct the terms of a block's passes by what they were measured to take.

Link, accelerator's stages, its attention, the CPU's attention, layers or MLPs on the CPU, and the
disk have a factor each, of a window of passes; what remains of their time is slack. What a window
does not use keeps its factor.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tandem.cost.block_pass import PassTerms, PassWork, longest_s, pass_terms
from tandem.plan.share_terms import ShareTerms

_MOST = 8.0  # beyond it, what is measured is not the term


class MeasuredPass(NamedTuple):
    """A pass that has run.

    Attributes:
        busy: of its operations. wall_s: until the next program followed it.
    """

    work: PassWork
    busy: PassTerms
    wall_s: float


@dataclass(frozen=True, slots=True)
class BlockFactors:
    """How many times as long as the plan says terms take."""

    stages: float = 1.0
    attention: float = 1.0
    link: float = 1.0
    host: float = 1.0
    disk: float = 1.0
    mlps: float = 1.0

    def __str__(self) -> str:
        named = {"accelerator": self.stages, "its attention": self.attention}
        named |= {"link": self.link, "CPU attention": self.host}
        named |= {"disk": self.disk} if self.disk != 1.0 else {}
        named |= {"layers or MLPs on the CPU": self.mlps} if self.mlps != 1.0 else {}
        return ", ".join(f"{name} {factor:.2f}" for name, factor in named.items())


def factors_of(
    given: ShareTerms, passes: Sequence[MeasuredPass], before: BlockFactors
) -> BlockFactors:
    """Of a window of passes.

    Where keys and values are streamed, their copies tell what the link takes: weights let them
    go first, so that their own times include waiting.
    """
    said = _sum([pass_terms(given, each.work) for each in passes])
    took = _sum([each.busy for each in passes])
    streams = any(each.work.streamed_rows for each in passes)
    link = (said.copies_s, took.copies_s) if streams else (said.weights_s, took.weights_s)
    return BlockFactors(
        _factor(said.stages_s, took.stages_s, before.stages),
        _factor(said.attention_s, took.attention_s, before.attention),
        _factor(*link, before.link),
        _factor(said.host_s, took.host_s, before.host),
        _factor(said.reads_s, took.reads_s, before.disk),
        _factor(said.mlps_s, took.mlps_s, before.mlps),
    )


def corrected(
    given: ShareTerms, factors: BlockFactors, passes: Sequence[MeasuredPass]
) -> ShareTerms:
    """Terms with their factors, and the slack that makes them as long as the passes were."""
    apart = given.streamed_attention
    terms = replace(
        given,
        stages_s=factors.stages * given.stages_s,
        way_s=factors.stages * given.way_s,
        weights_s=factors.link * given.weights_s,
        reads_s=factors.disk * given.reads_s,
        mlps=given.mlps.times(factors.mlps),
        returns_s=factors.link * given.returns_s,
        attention=given.attention.times(factors.attention),
        streamed_attention=apart and apart.times(factors.attention),
        cache=given.cache.times(factors.link),
        queries=given.queries.times(factors.link),
        results=given.results.times(factors.link),
        host=given.host.times(factors.host),
    )
    least_s = sum(longest_s(terms, each.work) for each in passes)
    took_s = sum(each.wall_s for each in passes)
    return replace(terms, slack=took_s / least_s) if least_s > 0 and took_s > 0 else terms


def _sum(terms: Sequence[PassTerms]) -> PassTerms:
    return PassTerms(*(sum(values) for values in zip(*terms, strict=True)))


def _factor(said_s: float, took_s: float, before: float) -> float:
    if said_s <= 0 or took_s <= 0:
        return before
    return min(max(took_s / said_s, 1 / _MOST), _MOST)
