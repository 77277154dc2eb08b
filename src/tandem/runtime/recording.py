"""Graphs of several sizes, recorded within bounds of time and memory."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

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


def record_sizes(
    sizes: Iterable[int],
    record: Callable[[int], None],
    taken_bytes: Callable[[], int | None],
    limit_s: float,
    limit_bytes: int,
    *,
    at_least: int = 0,
) -> Recording:
    """Record as many sizes as time and memory allow, in the order of `by_use`. A size is begun if
    there is time for it, by what the one before has taken.

    Args:
        record: one size. Its `RuntimeError`, torch's own or of a device that cannot record
            something, is the problem; and the end, unless no size before could be recorded: the
            largest may lack memory that others do not need.
        at_least: so many are begun however little time there is.
    """
    begun_s = before_s = time.perf_counter()
    taken, problem, last_s, failed, made = taken_bytes(), None, 0.0, None, 0
    for number, size in enumerate(by_use(sizes)):
        if number >= at_least and before_s - begun_s + last_s >= limit_s:
            problem = f"recording more would take longer than {limit_s:.0f} s"
        elif (taken or 0) > limit_bytes:
            problem = f"graphs take more than {format_size(limit_bytes)}"
        else:
            problem = _problem_of(record, size)
            taken, now_s = taken_bytes(), time.perf_counter()
            last_s, before_s = now_s - before_s, now_s
            made += problem is None
        failed = failed or problem
        if problem is not None and made:
            break
    return Recording(failed, time.perf_counter() - begun_s, taken)


def by_use(sizes: Iterable[int]) -> tuple[int, ...]:
    """The largest first: in its memory all others find room, and steps of a size that has no graph
    are padded to the next one. Then the smallest, a row by itself: padded it would cost most, for
    each token that it gives. Then the others, large ones first, since they pay for padding with
    products, where small ones wait for weights.
    """
    falling = sorted(set(sizes), reverse=True)
    return tuple(falling[:1] + falling[1:][-1:] + falling[1:-1])


def _problem_of(record: Callable[[int], None], size: int) -> str | None:
    try:
        record(size)
    except RuntimeError as error:
        return str(error).partition("\n")[0] or type(error).__name__
    return None
