"""When operations began, from when others ended."""

import math
from collections import deque

from tandem.plan.program import Queue
from tandem.runtime.running import Completed

_KEPT_ENDS = 4096


class OpStarts:
    """Tells an operation's start: the latest of when it was launched, its queue was free, and what
    it waits for had ended.

    A device says when operations end. Between an end and the start that it permits nothing happens
    on it, so that no second mark is needed. Ends older than a queue's latest few thousand are as
    good as minus infinity: whoever asks for them began later.

    Operations must be given in an order in which causes come before effects. Not safe against
    several threads.
    """

    def __init__(self) -> None:
        self._ends = {queue: deque[float](maxlen=_KEPT_ENDS) for queue in Queue}
        self._count = dict.fromkeys(Queue, 0)

    def add(self, completed: Completed) -> list[tuple[float, float]]:
        """Start and end of each part of the next run of a queue; ends of a queue never decrease."""
        launch = completed.launch
        queue = launch.queue
        ends = self._ends[queue]
        fed_s = max((self._end(on, value) for on, value in launch.waits), default=-math.inf)
        free_s = ends[-1] if ends else -math.inf
        spans = list[tuple[float, float]]()
        for begun_s, ended_s in completed.spans_s:
            end_s = max(ended_s, free_s)
            spans.append((min(max(begun_s, free_s, fed_s), end_s), end_s))
            free_s = end_s
        count = launch.value - self._count[queue]
        ends.extend([free_s] * count)  # who waits for it, waits for its last operation
        self._count[queue] = launch.value
        return spans

    def _end(self, queue: Queue, value: int) -> float:
        place = value - self._count[queue] - 1
        ends = self._ends[queue]
        return ends[place] if -len(ends) <= place < 0 else -math.inf
