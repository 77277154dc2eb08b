"""Threads that work, start and finish without Python (contract 2).

Import this module only if `native.available()`.
"""

from typing import Generic, TypeVar

from torch import Tensor

from tandem.kernels import _native
from tandem.kernels.native import choose_isa

Signal = _native.Signal
SignalPoint = tuple[Signal, int]  # a counter and the value that it must reach, or will have

_Result = TypeVar("_Result")


class Pending(Generic[_Result]):
    """Work under way.

    Dropping it waits for its end, since the threads write to its memory until then: with an `after`
    that is never reached, for ever.

    Attributes:
        result: what is filled; may be read once it is done.
    """

    __slots__ = ("_task", "result")

    def __init__(self, task: _native.Task, result: _Result) -> None:
        self._task = task
        self.result = result

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until done; False if `timeout_s` passed first. Raises what the work raised."""
        return self._task.wait(timeout_s)

    def cancel(self) -> bool:
        """Take back work of which nothing has begun: `wait` then raises, no signal is raised.

        False, and nothing happens, if it has begun.
        """
        return self._task.cancel()

    @property
    def done(self) -> bool:
        """Whether the result is complete, or an error is there for `wait` to raise."""
        return self._task.done

    @property
    def start_s(self) -> float:
        """When the work began, on the clock of `time.monotonic`; 0 before."""
        return self._task.start_ns * 1e-9

    @property
    def end_s(self) -> float:
        """When the work ended, on the clock of `time.monotonic`; 0 before."""
        return self._task.end_ns * 1e-9


def usable_threads() -> int:
    """Processors of the affinity mask, or the cgroup's quota, rounded down, if that is less."""
    return _native.default_num_threads()


class NativePool:
    """Persistent threads for the compiled kernels; safe to use from several threads.

    Results are the same, bit for bit, for the same number of threads.

    Args:
        num_threads: 0 for the process's affinity mask, or the cgroup's quota if that is less.
        pin: bind each thread to one processor of the mask.
        spin_s: how long an idle thread spins before it sleeps.
        isa: an instruction set's name; None for `native.choose_isa`.

    Attributes:
        isa: name of the instruction set that the kernels run with.
        handle: the compiled pool, for the modules of the kernels.

    Raises:
        ConfigError: TANDEM_CPU_ISA cannot be followed.
        ValueError: a negative number, or an `isa` that is not supported here.
    """

    __slots__ = ("handle", "isa")

    def __init__(
        self,
        num_threads: int = 0,
        *,
        pin: bool = False,
        spin_s: float = 50e-6,
        isa: str | None = None,
    ) -> None:
        self.isa = choose_isa() if isa is None else _native.choose_isa(isa)
        self.handle = _native.Pool(num_threads, pin, round(spin_s * 1e6))

    @property
    def num_threads(self) -> int:
        """Threads of the pool."""
        return self.handle.num_threads

    def resize(self, num_threads: int) -> None:
        """Finish what runs and continue with another number of threads (0: as for a new pool).

        Batches keep the division that they were planned with.

        Raises:
            ValueError: a negative number.
            RuntimeError: so many threads cannot be had; the pool stays as it was.
        """
        self.handle.resize(num_threads)

    def read_seconds(self, memory: Tensor) -> float:
        """Time in which the threads read `memory` (contiguous) once: the bound of any kernel."""
        return _native.read_seconds(self.handle, memory)
