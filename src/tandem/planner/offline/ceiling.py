"""What no plan of a batch job exceeds: linear programmes over shares of weights and of KV.

For numbers of places and of batches, for which memory has room as requests are so long, all shares
are free: of layers that are streamed (none, or some, whose slots take their room), of those that
are read from disk before, of those that are left to the CPU in passes, whole or their MLPs where
these alone are elsewhere (all but as many as stay in slots, or some while the others come), and of
sequences with their KV on the accelerator, streamed, streamed with all of their prompt recomputed,
or attended on the CPU (`relaxation/`).

Sequences of a pass are counted in the mean (`occupancy.py`), fewer than there are places where long
ones run on alone. Any pass may have others: as many as there are places, or one, with any batch
empty; what all take in the mean is the least that such numbers allow for
(`relaxation/mean_prices.py`). Prompts are read by as few programs as places allow for, however few
sequences are left to the passes: no other programs take less for a prompt. Places are bounded in
steps, each as a whole: the tokens and prompts of the most in passes of the fewest, since time grows
with sequences. Sequences need not be whole: of five requests in two blocks, each has 2.5 in the
mean. Layers do (`relaxation/whole_layers.py`). More of a resource never lowers the ceiling: it is
the most over all steps, numbers of layers and kinds of blocks, which are the same for every
machine, and the value of each is at least as high on a larger one (`relaxation/shares.py`). Which
of them are looked at depends on the machine, the result does not.

Not bounded so: kernels whose times were measured, of which nothing is known between sizes.
"""

import heapq
import itertools
import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import NamedTuple

from tandem.planner.offline.occupancy import Occupancy
from tandem.planner.offline.relaxation.block_programmes import (
    BlockKind,
    BlockProgrammes,
    RelaxedBlock,
    Sequences,
)
from tandem.planner.offline.relaxation.whole_layers import WholeLayers
from tandem.planner.offline.times import BlockTimes
from tandem.planner.question import Question

_CLOSE = 1.01
"""By how much a step's end may exceed its begin, in places and in sequences."""
_FEW_STEPS = 8
"""In which shares of layers are much alike: whole numbers of them are looked for."""


@dataclass(frozen=True, slots=True)
class BlockCeiling:
    """The most output tokens per second of the job.

    Attributes:
        rows: sequences of the block that reaches it, in all batches, in the mean over its passes.
        streamed: share of the layers. resident, crossing, recomputed, cpu: of sequences.
        programmes: that were solved.
    """

    tokens_per_s: float
    rows: float
    streamed: float
    resident: float
    crossing: float
    recomputed: float
    cpu: float
    programmes: int


class _Steps(NamedTuple):
    """Some steps one after the other, for a kind of block, and what bounds them as a whole.

    Attributes:
        begin, end: numbers of steps. layers: how many may be elsewhere.
        relaxed: of the fewest sequences, and of the most prompts, if it is known.
    """

    kind: BlockKind
    begin: int
    end: int
    layers: WholeLayers
    relaxed: RelaxedBlock | None = None


class BlockCeilings:
    """Bounds for one question.

    Args:
        times: of the search whose plans are bounded.
    """

    def __init__(self, question: Question, times: BlockTimes) -> None:
        self._q = question
        self._programmes = BlockProgrammes(times)
        self._occupancy = Occupancy(question.lengths)
        self._most_rows = times.footprint.max_rows
        self._ends = self._steps()

    def ceiling(self) -> BlockCeiling | None:
        """Over all numbers of sequences; None if not even one fits.

        Steps are halved, those first that promise most; what holds for some together holds for
        each of them. Of few steps, layers are then in whole numbers.
        """
        ties, queue = itertools.count(), list[tuple[float, int, _Steps]]()

        def push(most_per_s: float, steps: _Steps) -> None:
            if steps.relaxed is not None:
                most_per_s = min(most_per_s, self._rate(steps, steps.relaxed))
            heapq.heappush(queue, (-most_per_s, next(ties), steps))

        every = WholeLayers.any_of(self._q.model.num_layers)
        for kind in self._programmes.kinds():
            push(math.inf, _Steps(kind, 0, len(self._ends) - 1, every))
        while queue:
            minus_per_s, _, steps = heapq.heappop(queue)
            if steps.relaxed is None:
                relaxed = self._relaxed(steps)
                if relaxed is not None:
                    push(-minus_per_s, steps._replace(relaxed=relaxed))
                continue
            parts = self._parts(steps, steps.relaxed)
            if not parts:
                _, most = self._places(steps)
                rows = self._occupancy.most_rows(most)
                return self._found(-minus_per_s, rows, steps.relaxed)
            for part in parts:
                push(-minus_per_s, part)
        return None

    def _parts(self, steps: _Steps, relaxed: RelaxedBlock) -> list[_Steps]:
        """Which together are the steps with all numbers of layers; none if there is one of both."""
        shares, layers = relaxed.shares, self._q.model.num_layers
        begin, end = steps.begin, steps.end
        if end - begin <= _FEW_STEPS:
            found = steps.layers.branches(shares.streamed * layers, shares.lent * layers)
            if branched := [steps._replace(layers=each, relaxed=None) for each in found]:
                return branched
        if end - begin == 1:
            return []
        middle = (begin + end) // 2
        either = steps._replace(end=middle), steps._replace(begin=middle)
        return [part._replace(relaxed=None) for part in either]

    def _relaxed(self, steps: _Steps) -> RelaxedBlock | None:
        """Of the sequences that the fewest places have, of which memory has room for no more, while
        any pass may have as many as the most; None if there is no room, nor for more.
        """
        fewest, most = self._places(steps)
        if fewest > most:
            return None
        rows, read = self._occupancy.most_rows(fewest), self._occupancy.most_read(most)
        programs = self._occupancy.most_rows(most) / read
        sequences = Sequences(rows, fewest, most, programs, read)
        return self._programmes.least(steps.kind, sequences, steps.layers)

    def _places(self, steps: _Steps) -> tuple[int, int]:
        """Fewest and most: one of each batch at least, and no more than a batch may have."""
        batches = steps.kind.batches
        most = min(self._ends[steps.end], batches * self._most_rows)
        return max(batches, self._ends[steps.begin] + 1), most

    def _found(self, tokens_per_s: float, rows: float, relaxed: RelaxedBlock) -> BlockCeiling:
        shares = relaxed.shares
        return BlockCeiling(
            tokens_per_s,
            rows,
            shares.streamed,
            shares.resident,
            shares.crossing,
            shares.recomputed,
            shares.cpu,
            self._programmes.solved,
        )

    def _rate(self, steps: _Steps, relaxed: RelaxedBlock) -> float:
        """Of the most sequences, with their prompts, in passes of the fewest."""
        _, most = self._places(steps)
        rows = self._occupancy.most_rows(most)
        return rows * self._q.lengths.generated_tokens / relaxed.shares.block_s

    def _steps(self) -> list[int]:
        """Numbers of places between which steps are, none of all up to a hundred: as many more as
        neither take much more memory nor have many more sequences in a pass.
        """
        found, most, rows_of = [0], self._q.lengths.requests, self._occupancy.most_rows
        while found[-1] < most:
            first = found[-1] + 1
            rows = rows_of(first) * _CLOSE
            near = range(first + 1, min(most, int(first * _CLOSE)) + 1)
            more = bisect_left(near, True, key=lambda places, rows=rows: rows_of(places) > rows)
            found.append(first + more)
        return found
