"""Two queues over one direction of the link: small copies go first, loads take longer."""

from collections import deque

_Interval = tuple[float, float]


class SharedLink:
    """Lengthens loads by the time of copies in the same direction, so that the link is never busy
    for longer than time passes.

    Both queues are in order, so starts ascend in each; a copy may become known only after a load
    that it overlaps, and is then charged to the next one.
    """

    def __init__(self) -> None:
        self._copies: deque[_Interval] = deque()
        self._loads: deque[_Interval] = deque()
        self._owed_s = 0.0

    def copy(self, start_s: float, end_s: float) -> None:
        """A copy takes place, however busy the link is with loads."""
        while self._loads and self._loads[0][1] <= start_s:
            self._loads.popleft()
        self._owed_s += sum(_overlap_s((start_s, end_s), load) for load in self._loads)
        self._copies.append((start_s, end_s))

    def load_s(self, start_s: float, alone_s: float) -> float:
        """Duration of a load that would take `alone_s` on a link of its own."""
        while self._copies and self._copies[0][1] <= start_s:
            self._copies.popleft()
        end_s = start_s + alone_s + self._owed_s
        self._owed_s = 0.0
        for copy in self._copies:
            if copy[0] >= end_s:
                break
            end_s += copy[1] - max(copy[0], start_s)
        self._loads.append((start_s, end_s))
        return end_s - start_s


def _overlap_s(one: _Interval, other: _Interval) -> float:
    return max(0.0, min(one[1], other[1]) - max(one[0], other[0]))
