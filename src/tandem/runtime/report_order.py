"""Completions in an order in which causes come before effects."""

from collections import deque
from collections.abc import Iterable

from tandem.plan.program import Queue
from tandem.runtime.running import Completed


class ReportOrder:
    """Holds completed operations back until all that they follow from has been reported.

    Queues complete independently and tell so on threads of their own; a step's tokens could
    otherwise be heard of before the join that they come from. Not safe against several threads.
    """

    def __init__(self) -> None:
        self._reported = dict.fromkeys(Queue, 0)
        self._held: dict[Queue, deque[Completed]] = {queue: deque() for queue in Queue}

    def completed(self, queue: Queue, ended: Iterable[Completed]) -> list[Completed]:
        """Take in those that come next on a queue; returns what may be reported now, in order."""
        self._held[queue].extend(ended)
        ready: list[Completed] = []
        waiting = [queue]
        while waiting:
            if self._release(waiting.pop(), ready):
                # what others hold may have waited for it
                waiting = [queue for queue, held in self._held.items() if held]
        return ready

    def _release(self, queue: Queue, ready: list[Completed]) -> bool:
        """Let a queue's go as far as they may; whether any went."""
        held, reported, before = self._held[queue], self._reported, len(ready)
        while held:
            launch = held[0].launch
            for on, value in launch.told_after:
                if reported[on] < value:
                    return len(ready) > before
            ready.append(held.popleft())
            reported[queue] = launch.value
        return len(ready) > before
