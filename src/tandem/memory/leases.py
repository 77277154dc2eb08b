"""Until which step operations in flight may still touch a block (contract 5)."""

import heapq
from collections.abc import Iterable


class LeaseBook:
    """For each block the last step whose operations in flight name it.

    Leases only ever grow: a block is unleased when *every* lease ever placed on it has expired,
    whoever held it in between.
    """

    __slots__ = ("_blocks_by_step", "_completed_step", "_steps", "_until")

    def __init__(self, num_blocks: int) -> None:
        self._completed_step = -1
        self._until = [-1] * num_blocks
        self._blocks_by_step: dict[int, list[int]] = {}
        self._steps: list[int] = []

    @property
    def completed_step(self) -> int:
        """The last step that has completed; -1 before the first."""
        return self._completed_step

    def extend(self, blocks: Iterable[int], step: int) -> None:
        """Lease blocks until `step` completes; those are left alone that are leased longer."""
        until = self._until
        if step <= self._completed_step:
            return
        shorter = [block for block in blocks if until[block] < step]
        if not shorter:
            return
        for block in shorter:
            until[block] = step
        leased = self._blocks_by_step.get(step)
        if leased is None:
            leased = self._blocks_by_step[step] = []
            heapq.heappush(self._steps, step)
        leased += shorter

    def is_active(self, block: int) -> bool:
        """True while an operation in flight may name the block."""
        return self._until[block] > self._completed_step

    def complete(self, step: int) -> list[int]:
        """Expire leases up to `step`; returns the blocks that are under no lease any more, each
        once.

        Raises:
            ValueError: `step` lies before one that has completed already.
        """
        if step < self._completed_step:
            raise ValueError(f"step {step} completes after step {self._completed_step}")
        self._completed_step = step
        if not self._steps or self._steps[0] > step:
            return []
        expired: list[int] = []
        while self._steps and self._steps[0] <= step:
            leased = self._blocks_by_step.pop(heapq.heappop(self._steps))
            # A later lease on the same block has its own entry under that later step.
            expired.extend(block for block in leased if self._until[block] <= step)
        return list(dict.fromkeys(expired))
