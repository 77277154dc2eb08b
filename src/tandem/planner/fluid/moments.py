"""What goes by in virtual time between two moments, to be gone through again."""

from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import NamedTuple


class Standing(NamedTuple):
    """Where queues are when one group of a submission is all that runs.

    In equal standings, at places where the same groups follow at the same costs, the same happens.

    Attributes:
        submission: whose group runs, and whose are next on all queues that have any.
        ahead: by queue, how many places its next group is after the running one.
        watching: by queue, for how many more of its ends others wait, and whose next groups.
    """

    submission: object
    ahead: Mapping[int, int]
    watching: tuple[tuple[tuple[int, int], ...], ...]


class Moments:
    """Steps of time since a standing, and what they add to each sum.

    Args:
        place: of the group that ran.
    """

    def __init__(self, standing: Standing, place: int) -> None:
        self.standing, self.place = standing, place
        self._steps: list[float] = []
        self._drawn: list[float] = []
        self._hidden: list[float] = []
        self._busy: dict[int, list[float]] = {}

    def add(self, step_s: float, dram_bytes: float, busy: list[int], *, hidden: bool) -> None:
        """Time has gone by while some queues were busy."""
        self._steps.append(step_s)
        self._drawn.append(dram_bytes)
        if hidden:
            self._hidden.append(step_s)
        for queue in busy:
            self._busy.setdefault(queue, []).append(step_s)

    def until(self, now_s: float, until_s: float, most: int) -> tuple[int, float]:
        """How often all of it fits from now on, up to `most` times; and when it is over then."""
        for count in range(most):
            next_s = reduce(add, self._steps, now_s)
            if next_s > until_s:
                return count, now_s
            now_s = next_s
        return most, now_s

    def dram_bytes(self, count: int, before: float) -> float:
        """The sum after so many more times."""
        return reduce(add, self._drawn * count, before)

    def hidden_s(self, count: int, before: float) -> float:
        """Likewise."""
        return reduce(add, self._hidden * count, before)

    def busy_s(self, count: int, before: list[float]) -> list[float]:
        """Likewise, by queue."""
        return [
            reduce(add, self._busy.get(queue, []) * count, each)
            for queue, each in enumerate(before)
        ]
