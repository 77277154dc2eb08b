"""Virtual time for the paced emulator: a clock that jumps and a pool that stamps by script."""

from collections.abc import Callable

from tandem.runtime.paced.ledger import HostTask
from tandem.runtime.paced.pool import TaskSource
from tandem.spec.model import ModelSpec, RopeSpec

TINY = ModelSpec(
    architecture="llama",
    vocab_size=128,
    hidden_size=64,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    intermediate_size=96,
    max_positions=512,
    rope=RopeSpec(),
    eos_token_ids=(0, 7),
)


class VirtualClock:
    """Time passes only when it is waited for."""

    def __init__(self) -> None:
        self.time_s = 0.0

    def now(self) -> float:
        return self.time_s

    def worked_s(self) -> float:
        return 0.0

    def wait(self, deadline_s: float | None) -> None:
        assert deadline_s is not None, "nothing would ever ring: virtual pools stamp at once"
        self.time_s = max(self.time_s, deadline_s)

    def ring(self) -> None:
        """Nobody sleeps."""

    def close(self) -> None:
        """Nothing to free."""


class ScriptedPool:
    """Stamps every task as soon as it is ready, ahead of the clock."""

    def __init__(self, duration_s: Callable[[HostTask], float], *, work: bool = False) -> None:
        self._duration_s = duration_s
        self._work = work
        self._source: TaskSource | None = None
        self._free_s = 0.0
        self._entered = False

    def start(self, source: TaskSource) -> None:
        self._source = source

    def wake(self) -> None:
        if self._entered:
            return
        assert self._source is not None
        self._entered = True
        while (task := self._source.take_task()) is not None:
            start_s = max(task.not_before_s, self._free_s)
            duration_s = 0.0
            if self._source.has_work(task):
                duration_s = self._duration_s(task)
                if self._work:
                    self._source.run_task(task)
            self._free_s = self._source.completed(task, start_s, start_s + duration_s)
        self._entered = False

    def close(self) -> None:
        """No thread."""
