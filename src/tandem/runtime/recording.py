"""Graphs of several sizes, recorded within bounds of time and memory."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from tandem.devices.memory_errors import exhausted_memory
from tandem.spec.units import format_size


@dataclass(frozen=True, slots=True)
class Recording:
    """What came of it.

    Attributes:
        problem: why some sizes have no graphs; None: all have.
        seconds: that it took.
        taken_bytes: of the device's memory, by all that the maker has recorded; None: not known.
    """

    problem: str | None = None
    seconds: float = 0.0
    taken_bytes: int | None = None


class _Failure(NamedTuple):
    """Why a size has no graph, and whether a smaller one may have one."""

    problem: str
    lacks_memory: bool = False


def record_sizes(
    sizes: Iterable[int],
    record: Callable[[int], None],
    taken_bytes: Callable[[], int | None],
    limit_s: float,
    limit_bytes: int,
    *,
    at_least: int = 0,
) -> Recording:
    """Record as many sizes as time and memory allow.

    The largest first: in its memory all others find room, and steps of a size that has no graph are
    padded to the next one. Where there is no memory for it, the next largest, up to the first that
    can be recorded. Then the smallest, a row by itself: padded it would cost most, for each token
    that it gives. Then the others, large ones first, since they pay for padding with products,
    where small ones wait for weights.

    Args:
        record: one size. Its `RuntimeError`, torch's own or of a device that cannot record
            something, is the problem; and the end, unless memory ran out and nothing has been
            recorded before: work that cannot be recorded, or comes out wrong, is so at any size.
        limit_s: a size is begun if there is time for it, by what the one before has taken.
        limit_bytes: of what has been recorded; what failed attempts leave in its memory is not
            counted, since others find room there.
        at_least: so many are begun however little time there is.
    """
    recorder = _Recorder(record, taken_bytes, limit_s, limit_bytes, at_least)
    left, made = sorted(set(sizes), reverse=True), False
    problem: str | None = None
    while left:
        failure = recorder.attempt(left.pop(0))
        if failure is None and not made:
            left, made = left[-1:] + left[:-1], True
        if failure is not None:
            problem = problem or failure.problem
            if made or not failure.lacks_memory:
                break
    return Recording(problem, recorder.seconds, recorder.taken)


class _Recorder:
    """Begins a size where bounds allow."""

    def __init__(
        self,
        record: Callable[[int], None],
        taken_bytes: Callable[[], int | None],
        limit_s: float,
        limit_bytes: int,
        at_least: int,
    ) -> None:
        self._record, self._taken_bytes = record, taken_bytes
        self._limit_s, self._limit_bytes, self._at_least = limit_s, limit_bytes, at_least
        self._begun_s = self._before_s = time.perf_counter()
        self._last_s, self._attempts, self._left_bytes = 0.0, 0, 0
        self.taken = taken_bytes()

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.perf_counter() - self._begun_s

    def attempt(self, size: int) -> _Failure | None:
        """Record a size; None: it is."""
        expected_s = self._before_s - self._begun_s + self._last_s
        if self._attempts >= self._at_least and expected_s >= self._limit_s:
            return _Failure(f"recording more would take longer than {self._limit_s:.0f} s")
        if (self.taken or 0) - self._left_bytes > self._limit_bytes:
            limit = format_size(self._limit_bytes)
            return _Failure(f"graphs, or others at that moment, took more than {limit}")
        failure, before = _failure_of(self._record, size), self.taken
        self.taken, now_s = self._taken_bytes(), time.perf_counter()
        self._last_s, self._before_s = now_s - self._before_s, now_s
        self._attempts += 1
        if failure is not None and self.taken is not None and before is not None:
            self._left_bytes += max(0, self.taken - before)
        return failure


def _failure_of(record: Callable[[int], None], size: int) -> _Failure | None:
    try:
        record(size)
    except RuntimeError as error:
        problem = str(error).partition("\n")[0] or type(error).__name__
        return _Failure(problem, _lacks_memory(error))
    return None


def _lacks_memory(error: BaseException | None) -> bool:
    """Whether memory ran out, or had when something else failed over it, as a capture's end."""
    while error is not None:
        if exhausted_memory(error) is not None:
            return True
        error = error.__context__
    return False
