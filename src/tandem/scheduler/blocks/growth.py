"""How many KV blocks sequences will hold, pass by pass: who enters never has to leave.

In a block every sequence gets a token in every pass, and none gets more than it asked for. So what
a memory must hold in each pass to come is known, but for sequences that end early, which free it
sooner. Short sequences make room into which long ones grow.
"""

import numpy as np

from tandem.plan.binding import LongArray


def growth_of(prompt: int, limit: int, made: int, block_size: int) -> LongArray:
    """Blocks that a sequence holds while its prompt is computed, and in each pass after it.

    The last token needs no keys and values: it takes part in no pass.

    Args:
        prompt, limit: tokens of its prompt, and of prompt and output together.
        made: leading blocks that are recomputed, and have no memory.

    Returns: int64 [1 + passes], ascending.
    """
    passes = max(0, limit - prompt - 1)
    last = np.arange(prompt - 1, prompt + passes)
    return last // block_size + 1 - made


class Growth:
    """Blocks of one memory that its sequences will hold if none ends early.

    Args:
        num_blocks: that there are.
        most_tokens: of a sequence.
    """

    def __init__(self, num_blocks: int, most_tokens: int) -> None:
        self._total = num_blocks
        # first what is held now, then in the next pass, and so on
        self._held: LongArray = np.zeros(most_tokens + 1, dtype=np.int64)

    @property
    def held(self) -> int:
        """Blocks now."""
        return int(self._held[0])

    def fits(self, growth: LongArray) -> bool:
        """Whether a sequence that enters now has room in every pass."""
        return bool((self._held[: len(growth)] + growth <= self._total).all())

    def times(self, growth: LongArray) -> int:
        """How many sequences like that have room together."""
        left = self._total - self._held[: len(growth)]
        return int((left // np.maximum(growth, 1)).min())

    def add(self, growth: LongArray) -> None:
        """A sequence enters."""
        self._held[: len(growth)] += growth

    def remove(self, rest: LongArray) -> None:
        """A sequence ends.

        Args:
            rest: of its growth, what it holds now and would have held later.
        """
        self._held[: len(rest)] -= rest

    def advance(self) -> None:
        """A pass begins."""
        self._held[:-1] = self._held[1:]
        self._held[-1] = 0
