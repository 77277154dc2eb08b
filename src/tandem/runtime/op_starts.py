"""When operations began, from when others ended."""

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

    def add(self, completed: Completed) -> tuple[float, float]:
        """Start and end of the next operation of a queue; ends of a queue never decrease."""
        running = completed.running
        queue = running.op.queue
        ends = self._ends[queue]
        free_s = ends[-1] if ends else completed.begun_s
        start_s = max(completed.begun_s, free_s)
        for on, value in running.waits():
            start_s = max(start_s, self._end(on, value, start_s))
        end_s = max(completed.end_s, free_s)
        ends.append(end_s)
        self._count[queue] += 1
        return min(start_s, end_s), end_s

    def _end(self, queue: Queue, value: int, otherwise_s: float) -> float:
        place = value - self._count[queue] - 1
        ends = self._ends[queue]
        return ends[place] if -len(ends) <= place < 0 else otherwise_s
