"""The host's memory and the link as time passes: copies, reads from disk and the CPU's work share
them, and when work ends is not known before it does.
"""

from math import inf
from typing import NamedTuple

from tandem.plan.program import Queue
from tandem.runtime.paced.shared_memory import speed_of_all


class Over(NamedTuple):
    """Work that has ended."""

    queue: Queue
    start_s: float
    end_s: float


class _Work:
    """What one queue does: so much of it is done, and since then it goes on at one speed.

    Attributes:
        alone_s: what it takes at full speed; infinite as long as that is not known.
        end_s: if nothing changes; to the bit the same as long as the speed is.
    """

    __slots__ = ("_done_s", "_since_s", "alone_s", "bytes_per_s", "end_s", "speed", "start_s")

    def __init__(self, start_s: float, alone_s: float, bytes_per_s: float) -> None:
        self.start_s = self._since_s = start_s
        self.alone_s, self.bytes_per_s = alone_s, bytes_per_s
        self.speed, self._done_s = 1.0, 0.0
        self.foresee()

    def go_on(self, now_s: float, speed: float) -> None:
        """At this speed from now on."""
        if speed != self.speed:
            self._done_s += self.speed * (now_s - self._since_s)
            self._since_s, self.speed = now_s, speed
            self.foresee()

    def foresee(self) -> None:
        """When it will end."""
        left_s = max(0.0, self.alone_s - self._done_s)
        self.end_s = self._since_s + left_s / self.speed if self.speed else inf


class FluidMemory:
    """Event by event, by the rule of the planner's queues: nobody is slowed down until all together
    ask for more than there is, and then all by as much.

    Copies to the accelerator go before loads, which stand still meanwhile. Each queue does one
    thing at a time.

    Args:
        pool_bytes_per_s: of the host's memory; None: there is always enough.

    Attributes:
        now_s: the last start or end; nothing begins before it.
        moved_bytes: in the host's memory, until then.
    """

    def __init__(self, pool_bytes_per_s: float | None) -> None:
        self._pool = inf if pool_bytes_per_s is None else pool_bytes_per_s
        self._coming: dict[Queue, _Work] = {}
        self._going: dict[Queue, _Work] = {}
        self.now_s = self.moved_bytes = 0.0

    @property
    def is_idle(self) -> bool:
        """Nothing goes on, or will."""
        return not self._going and not self._coming

    def has(self, queue: Queue) -> bool:
        """Whether the queue works, or will."""
        return queue in self._going or queue in self._coming

    def begin(
        self, queue: Queue, start_s: float, alone_s: float, bytes_per_s: float | None
    ) -> None:
        """Work begins, now or later.

        Args:
            alone_s: at full speed; infinite: it will be told (`known`).
            bytes_per_s: asked for, of which no more counts than there is; None: all that there is.

        Raises:
            ValueError: the queue works.
        """
        if self.has(queue):
            raise ValueError(f"{queue.value} does one thing at a time")
        asked = self._pool if bytes_per_s is None else min(bytes_per_s, self._pool)
        moved = asked if asked < inf else 0.0
        self._coming[queue] = _Work(max(start_s, self.now_s), alone_s, moved)

    def known(self, queue: Queue, alone_s: float) -> None:
        """What work that has begun takes at full speed."""
        work = self._work(queue)
        work.alone_s = alone_s
        work.foresee()

    def foreseen_s(self, queue: Queue) -> float:
        """When a queue's work ends if nothing changes."""
        return self._work(queue).end_s

    def next_s(self) -> float:
        """The next start or end; infinite: there is none, or it is not known."""
        first_s = inf
        for work in self._coming.values():
            first_s = min(first_s, work.start_s)
        for work in self._going.values():
            first_s = min(first_s, work.end_s)
        return max(self.now_s, first_s)

    def advance(self) -> list[Over]:
        """Go on to the next start or end, of which there is one; returns what ended."""
        next_s = self.next_s()
        for work in self._going.values():
            self.moved_bytes += work.speed * work.bytes_per_s * (next_s - self.now_s)
        self.now_s = next_s
        over = [
            Over(queue, work.start_s, next_s)
            for queue, work in self._going.items()
            if work.end_s <= next_s
        ]
        for queue in [each.queue for each in over]:
            del self._going[queue]
        for queue in [q for q, work in self._coming.items() if work.start_s <= next_s]:
            self._going[queue] = self._coming.pop(queue)
        self._share()
        return over

    def _work(self, queue: Queue) -> _Work:
        return self._going[queue] if queue in self._going else self._coming[queue]

    def _share(self) -> None:
        """Tell everyone how fast it goes on."""
        stands_still = Queue.WEIGHTS if Queue.H2D in self._going else None
        moving = [work for queue, work in self._going.items() if queue is not stands_still]
        speed = speed_of_all(self._pool, sum(work.bytes_per_s for work in moving))
        for queue, work in self._going.items():
            if queue is stands_still:
                work.go_on(self.now_s, 0.0)
            else:
                work.go_on(self.now_s, speed if work.bytes_per_s else 1.0)
