"""Completions in an order in which causes come before effects."""

from collections import deque

from tandem.plan.program import Queue
from tandem.runtime.running import Completed


class ReportOrder:
    """Holds completed operations back until all that they waited for has been reported.

    Queues complete independently and tell so on threads of their own; a step's tokens could
    otherwise be heard of before the join that they come from. Not safe against several threads.
    """

    def __init__(self) -> None:
        self._reported = dict.fromkeys(Queue, 0)
        self._held: dict[Queue, deque[Completed]] = {queue: deque() for queue in Queue}

    def completed(self, completed: Completed) -> list[Completed]:
        """Take one in, next of its queue; returns those that may be reported now, in order."""
        self._held[completed.running.op.queue].append(completed)
        ready: list[Completed] = []
        while (queue := self._next()) is not None:
            ready.append(self._held[queue].popleft())
            self._reported[queue] += 1
        return ready

    def _next(self) -> Queue | None:
        for queue, held in self._held.items():
            if held and self._may_report(held[0]):
                return queue
        return None

    def _may_report(self, completed: Completed) -> bool:
        return all(self._reported[on] >= value for on, value in completed.running.waits())
