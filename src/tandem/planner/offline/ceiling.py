"""What no plan of a batch job exceeds: a linear programme over shares of weights and of KV.

For a number of sequences and of batches, for which memory has places as requests are so long
(`occupancy.py`), all shares are free: of layers that are streamed (none, or some, whose slots take
their room), of those that are read from disk before, of those that are left to the CPU in passes,
whole or their MLPs where these alone are elsewhere (all but as many as stay in slots, or some while
the others come), and of sequences with their KV on the accelerator, streamed, streamed with all of
their prompt recomputed, or attended on the CPU (`relaxation/`).
"""

import heapq
import itertools
import math
from bisect import bisect_left
from dataclasses import dataclass

from tandem.planner.offline.candidates import BATCHES
from tandem.planner.offline.occupancy import Occupancy
from tandem.planner.offline.relaxation.block_programmes import BlockProgrammes, RelaxedBlock
from tandem.planner.offline.times import BlockTimes
from tandem.planner.question import Question

_CLOSE = 1.01
"""Ranges of numbers of sequences whose ends differ by less are not divided further."""


@dataclass(frozen=True, slots=True)
class BlockCeiling:
    """The most output tokens per second of the job.

    Attributes:
        rows: sequences of the block that reaches it, in all batches, in the mean over its passes.
        streamed: share of the layers. resident, crossing, recomputed, cpu: of sequences.
        programmes: that were solved.
    """

    tokens_per_s: float
    rows: int
    streamed: float
    resident: float
    crossing: float
    recomputed: float
    cpu: float
    programmes: int


class BlockCeilings:
    """Bounds for one question.

    Args:
        times: of the search whose plans are bounded.
    """

    def __init__(self, question: Question, times: BlockTimes) -> None:
        self._q, self._times = question, times
        self._programmes = BlockProgrammes(times)
        self._occupancy = Occupancy(question.lengths)

    def ceiling(self) -> BlockCeiling | None:
        """Over all numbers of sequences; None if not even one fits.

        A range's bound has its end's tokens in its begin's time, since time grows with sequences.
        """
        ties = itertools.count()
        queue: list[tuple[float, int, int, int, RelaxedBlock]] = []

        def push(low: int, high: int) -> None:
            found = self._programmes.least(low, high, self._occupancy.places(low))
            if found is not None:
                heapq.heappush(queue, (-self._rate(high, found), next(ties), low, high, found))

        push(1, self._most_at_once())
        while queue:
            rate, _, low, high, found = heapq.heappop(queue)
            if high <= max(low, low * _CLOSE):
                return self._found(-rate, high, found)
            middle = min(high - 1, math.isqrt(low * high))
            push(low, middle)
            push(middle + 1, high)
        return None

    def _found(self, tokens_per_s: float, rows: int, relaxed: RelaxedBlock) -> BlockCeiling:
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

    def _most_at_once(self) -> int:
        """Sequences in a pass, in the mean.

        If memory does not hold all requests at once, some place serves several one after the other,
        and there are too many passes for the job's tokens to fill all places.
        """
        lengths, least = self._q.lengths, self._programmes.least
        most = min(lengths.requests, self._times.footprint.max_rows * BATCHES[-1])
        held = bisect_left(
            range(1, most + 1), True, key=lambda rows: least(rows, rows, rows) is None
        )
        return max(1, min(most, math.ceil(self._occupancy.most_rows(max(1, held)))))

    def _rate(self, rows: int, relaxed: RelaxedBlock) -> float:
        return rows * self._q.lengths.generated_tokens / relaxed.shares.block_s
