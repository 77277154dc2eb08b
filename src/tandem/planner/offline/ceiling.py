"""What no plan of a batch job exceeds: linear programmes over shares of weights and of KV.

For a number of sequences and of batches, for which memory has places as requests are so long
(`occupancy.py`), all shares are free: of layers that are streamed (none, or some, whose slots take
their room), of those that are read from disk before, of those that are left to the CPU in passes,
whole or their MLPs where these alone are elsewhere (all but as many as stay in slots, or some while
the others come), and of sequences with their KV on the accelerator, streamed, streamed with all of
their prompt recomputed, or attended on the CPU (`relaxation/`).

Numbers of sequences are those of a pass in the mean, fewer than there are places where long ones
run on alone: what a pass takes is convex in them (but of experts, and of few bits, so that plans
whose passes have very unlike numbers have exceeded this by up to a third). Prompts are read by as
few programs as places allow for, however few sequences are left to the passes: no other programs
take less for a prompt. Both are bounded in steps, each as a whole: its end's tokens and prompts, in
passes of its begin, since time grows with sequences. They need not be whole: of five requests in
two blocks, each has 2.5 in the mean. Layers do (`relaxation/whole_layers.py`). More of a resource
never lowers the ceiling: it is the most over all steps, numbers of layers and kinds of blocks,
which are the same for every machine, and the value of each is at least as high on a larger one
(`relaxation/shares.py`). Which of them are looked at depends on the machine, the result does not.
"""

import heapq
import itertools
import math
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
"""By how much a step's end may exceed its begin."""
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
        self._ends = _steps(self._occupancy.most_rows(question.lengths.requests))

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
                return self._found(-minus_per_s, self._ends[steps.end], steps.relaxed)
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
        """Of the fewest sequences, and of the most prompts; None if there is no room for them, nor
        for more.
        """
        batches = steps.kind.batches
        if self._q.lengths.requests < batches:
            return None
        rows, most = self._ends[steps.begin], self._ends[steps.end]
        places = max(batches, self._occupancy.places(rows))
        read = self._occupancy.most_read(most)
        sequences = Sequences(rows, places, most / read, read)
        return self._programmes.least(steps.kind, sequences, steps.layers)

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
        return self._ends[steps.end] * self._q.lengths.generated_tokens / relaxed.shares.block_s


def _steps(most: float) -> list[float]:
    """Numbers of sequences between which steps are."""
    found = [min(1.0, most)]
    while found[-1] < most:
        found.append(min(most, found[-1] * _CLOSE))
    return found if len(found) > 1 else found * 2
