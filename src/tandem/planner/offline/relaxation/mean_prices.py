"""Prices of a batch in the mean over passes that have unlike numbers of sequences."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from tandem.cost.unlike_rows import UnlikeRows
from tandem.plan.program import OpKind, ProgramOp
from tandem.planner.demand import Demand
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.prices import BlockPrices, Price

_BRINGS = (OpKind.LOAD, OpKind.READ)
"""However many sequences there are."""


class MeanRows(NamedTuple):
    """Of a block's passes, and of its programs over prompts.

    Attributes:
        passes: sequences of all batches that share them, or of each. batches: that do.
        programs: over prompts, in the mean. read: prompts of one, likewise, in the mean.
    """

    passes: UnlikeRows
    batches: int
    programs: float
    read: float


class MeanPrices:
    """No passes with as many sequences in the mean are cheaper. What an operation takes is convex
    in them, but for stages that read experts or few bits (`cost/unlike_rows.py`), and less for each
    the more there are. So where any batch may be empty, and then takes no time, there is no better
    than as few that are full as hold the mean, or one that is not; else than one more sequence in
    some passes than in others.

    Args:
        rows: candidates have as many as are in a batch at most.
    """

    def __init__(self, prices: BlockPrices, rows: MeanRows) -> None:
        self._prices, self._rows = prices, rows

    def least_decode(self, candidate: BlockCandidate) -> Price:
        """Of a pass that gives every sequence a token."""
        passes, each = self._rows.passes, 1 / self._rows.batches
        alike = self._mean(self._prices.least_decode, candidate, passes.mean)

        def price(op: ProgramOp) -> Demand:
            unlike = self._prices.least_stage(candidate, op, passes)
            return alike(op) if unlike is None else _times(unlike, each)

        return price

    def least_way(self, candidate: BlockCandidate) -> Price | None:
        """Of the batch that has the most in a pass: it has a sequence, and its share of all."""
        passes, batches = self._rows.passes, self._rows.batches
        if batches == 1:
            return None
        mean = max(1.0, passes.mean / batches)
        alike = self._mean(self._prices.least_decode, candidate, mean, shared=1)
        most = passes._replace(mean=mean, most=passes.at_once)

        def price(op: ProgramOp) -> Demand:
            unlike = self._prices.least_stage(candidate, op, most)
            return alike(op) if unlike is None else unlike

        return price

    def least_prefill(self, candidate: BlockCandidate) -> Price:
        """Of the programs over a block's prompts."""
        of_one = self._mean(self._prompts, candidate, self._rows.read)
        return lambda op: _times(of_one(op), self._rows.programs)

    def _prompts(self, candidate: BlockCandidate) -> Price:
        """Of one program."""
        alike, most = self._prices.least_prefill(candidate), self._rows.passes.at_once

        def price(op: ProgramOp) -> Demand:
            unlike = self._prices.least_prompts_stage(candidate, op, most)
            return alike(op) if unlike is None else unlike

        return price

    def _mean(
        self,
        price_of: Callable[[BlockCandidate], Price],
        candidate: BlockCandidate,
        rows: float,
        shared: int | None = None,
    ) -> Price:
        """Of a batch, if there are so many sequences in those that share them, in the mean.

        Args:
            shared: by so many; None: by as many as there are.
        """
        most, each = self._rows.passes.at_once, 1 / (shared or self._rows.batches)
        whole = min(most, max(1, int(rows)))
        fewer = price_of(_with_rows(candidate, whole))
        if whole == most:
            return _shared(fewer, rows / most * each)
        part = max(0.0, rows - whole)
        if not part:
            return _shared(fewer, each)
        more = price_of(_with_rows(candidate, whole + 1))
        return _shared(lambda op: _between(fewer(op), more(op), part), each)


def _shared(price: Price, share: float) -> Price:
    """What is not brought for all batches, of each."""
    if share == 1:
        return price
    return lambda op: price(op) if op.kind in _BRINGS else _times(price(op), share)


def _times(one: Demand, number: float) -> Demand:
    return one._replace(alone_s=number * one.alone_s)


def _between(one: Demand, other: Demand, part: float) -> Demand:
    """Of which so large a part is like the other."""
    shares = (1 - part) * one.alone_s, part * other.alone_s
    alone_s = sum(shares)
    if not alone_s:
        return Demand(0.0)
    rates = (
        sum(share * rate for share, rate in zip(shares, pair, strict=True)) / alone_s
        for pair in zip(one[1:], other[1:], strict=True)
    )
    return Demand(alone_s, *rates)


def _with_rows(kind: BlockCandidate, rows: int) -> BlockCandidate:
    """So many, all with their KV where those of the kind have it."""
    if kind.resident_rows:
        return replace(kind, resident_rows=rows)
    if kind.streamed_rows:
        return replace(kind, streamed_rows=rows)
    return replace(kind, cpu_rows=rows)
