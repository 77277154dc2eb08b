"""Completions in an order in which causes come before effects."""

from collections import deque

from tandem.plan.program import Queue
from tandem.runtime.running import Running


class ReportOrder:
    """Holds completed operations back until all that they waited for has been reported.

    Queues complete independently and tell so on threads of their own; a step's tokens could
    otherwise be heard of before the join that they come from. Not safe against several threads.
    """

    def __init__(self) -> None:
        self._reported = dict.fromkeys(Queue, 0)
        self._held: dict[Queue, deque[Running]] = {queue: deque() for queue in Queue}

    def completed(self, running: Running) -> list[Running]:
        """Take one in, next of its queue; returns those that may be reported now, in order."""
        self._held[running.op.queue].append(running)
        ready: list[Running] = []
        while (queue := self._next()) is not None:
            ready.append(self._held[queue].popleft())
            self._reported[queue] += 1
        return ready

    def _next(self) -> Queue | None:
        for queue, held in self._held.items():
            if held and all(self._reported[on] >= value for on, value in held[0].waits()):
                return queue
        return None
