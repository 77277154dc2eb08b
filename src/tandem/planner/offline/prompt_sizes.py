"""How a job's prompts are cut into parts: what predictions count, and what no order falls below."""

import math
from bisect import bisect_right
from collections import Counter
from statistics import fmean, pstdev
from typing import NamedTuple

from tandem.plan.prompt_parts import PartLimits, PromptSize, prompt_parts
from tandem.planner.question import Lengths

_MARGIN = 3.0
"""Standard deviations: prompts that are read together may be longer than the whole job's."""

_MOST_PROMPTS = 2048
"""That are looked at, taken evenly: as many as say what parts of more are like."""


class PartSizes(NamedTuple):
    """Parts of some prompts.

    Attributes:
        prompts: their number. parts: how many there are, by their tokens.
        alone: likewise, beside those, parts that are the same in any order: prompts beside which no
            other one fits.
    """

    prompts: int
    parts: tuple[tuple[int, float], ...]
    alone: tuple[tuple[int, float], ...] = ()


class PromptSizes:
    """Of one job.

    Args:
        most_tokens: of a part, but for a single longer prompt.

    Attributes:
        slot_blocks: so many of a slot hold the prompts of a part, as they are in the mean.
        shortest: tokens of the shortest prompt, than which no part has fewer.
    """

    def __init__(self, lengths: Lengths, block_size: int, most_tokens: int) -> None:
        known = [shape.prompt_tokens for shape in lengths.shapes]
        tokens = known or [max(1, round(lengths.prompt_tokens))]
        self._sizes = [PromptSize(n, -(-n // block_size)) for n in tokens]
        self._seen = self._sizes[:: -(-len(tokens) // _MOST_PROMPTS)]
        self._most_tokens = most_tokens
        blocks = sum(size.blocks for size in self._sizes)
        self.slot_blocks: int = 1 + math.ceil(most_tokens * blocks / sum(tokens))
        self.shortest: int = min(tokens)
        self._longest = max(tokens)
        self._together: dict[int, int] = {}
        self._packed: dict[int, PartSizes] = {}
        self._least: dict[int, PartSizes] = {}

    def together_tokens(self, rows: int) -> int:
        """Of so many prompts that are read in one program: a job's share of its tokens, and a
        margin, since one prompt without room would be read, and decoded, by itself.
        """
        if rows not in self._together:
            tokens = [size.tokens for size in self._sizes]
            spread = pstdev(tokens) * math.sqrt(rows * max(0.0, 1 - rows / len(tokens)))
            wanted = math.ceil(rows * fmean(tokens) + _MARGIN * spread)
            self._together[rows] = min(wanted, rows * max(tokens))
        return self._together[rows]

    def most_tokens(self, rows: int) -> int:
        """Of a part of at most so many prompts: a single one may have more than others together."""
        return max(self._longest, min(self._most_tokens, rows * self._longest))

    def packed(self, rows: int) -> PartSizes:
        """As an engine cuts them.

        Args:
            rows: at most so many prompts in a part.
        """
        rows = self._counted(rows)
        if rows not in self._packed:
            self._packed[rows] = self._cut(rows)
        return self._packed[rows]

    def least(self, rows: int) -> PartSizes:
        """Prompts beside which no other fits, each by itself; and parts of equal size, as few as
        any order may come to, of the others: of prompts longer than an n-th of a part, fewer than n
        are in one. Where each of these takes a time that is convex in its tokens, no others take
        less.
        """
        rows = self._counted(rows)
        if rows not in self._least:
            self._least[rows] = self._fewest(rows)
        return self._least[rows]

    def _counted(self, rows: int) -> int:
        """Beyond so many, it does not matter how many there may be."""
        return min(rows, max(1, self._most_tokens // self.shortest))

    def _cut(self, rows: int) -> PartSizes:
        sizes = self._seen
        if len(sizes) == 1:  # means alone are known
            count = max(1, min(rows, self._most_tokens // sizes[0].tokens))
            return PartSizes(count, ((count * sizes[0].tokens, 1.0),))
        most = PartLimits(self._most_tokens, self.slot_blocks, rows)
        tokens = (sum(sizes[n].tokens for n in part) for part in prompt_parts(sizes, most))
        return PartSizes(len(sizes), tuple(sorted(Counter(tokens).items())))

    def _fewest(self, rows: int) -> PartSizes:
        most, tokens = self._most_tokens, sorted(size.tokens for size in self._seen)
        # the shortest fits beside itself if there are others, or in a job of which means are known
        fit = bisect_right(tokens, most - tokens[0])
        if fit == 1 < len(tokens):
            fit = 0
        alone = tuple((size, float(number)) for size, number in Counter(tokens[fit:]).items())
        shared = tokens[:fit]
        if not shared:
            return PartSizes(len(tokens), (), alone)
        parts = max(sum(shared) / most, len(shared) / rows)
        for beside in range(1, self._counted(len(shared)) + 1):
            longer = len(shared) - bisect_right(shared, most / (beside + 1))
            parts = max(parts, longer / beside)
        return PartSizes(len(tokens), ((int(sum(shared) / parts), parts),), alone)
