"""Virtual time for the paced emulator: a clock that jumps, and a pool that is ahead of it.

Nothing here takes real time: neither the scheduler nor the host's operations are measured, and
whoever prints figures made so must say it.
"""

from collections.abc import Callable

from tandem.runtime.paced.ledger import HostTask
from tandem.runtime.paced.pool import TaskSource


class VirtualClock:
    """Time passes only when it is waited for."""

    def __init__(self) -> None:
        self.time_s = 0.0

    def now(self) -> float:
        """Seconds since the clock was made."""
        return self.time_s

    def worked_s(self) -> float:
        """The scheduler takes no time."""
        return 0.0

    def wait(self, deadline_s: float | None) -> None:
        """Be there."""
        assert deadline_s is not None, "nothing would ever ring: virtual pools stamp at once"
        self.time_s = max(self.time_s, deadline_s)

    def ring(self) -> None:
        """Nobody sleeps."""

    def close(self) -> None:
        """Nothing to free."""


class VirtualPool:
    """Says what a task takes as soon as it can begin, ahead of the clock.

    Args:
        duration_s: of a task. work: execute it as well, which does not count.
    """

    def __init__(self, duration_s: Callable[[HostTask], float], *, work: bool = False) -> None:
        self._duration_s = duration_s
        self._work = work
        self._source: TaskSource | None = None

    def start(self, source: TaskSource) -> None:
        """Tasks come from there."""
        self._source = source

    def wake(self) -> None:
        """Take what can begin."""
        assert self._source is not None
        while (task := self._source.take_task()) is not None:
            start_s = task.not_before_s
            if self._work:
                self._source.run_task(task)
            self._source.completed(task, start_s, start_s + self._duration_s(task))

    def close(self) -> None:
        """No thread."""
