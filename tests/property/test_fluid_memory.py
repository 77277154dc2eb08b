"""What shares the host's memory, against time in small steps: nothing is created, nobody is slowed
down without need.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem.plan.program import Queue
from tandem.runtime.paced.fluid_memory import FluidMemory

POOL = 1000.0


@dataclass
class Piece:
    """Of a queue's work, in order: it begins so long after the one before has ended."""

    gap_s: float
    alone_s: float
    bytes_per_s: float


pieces = st.builds(
    Piece,
    st.integers(0, 8).map(lambda n: n / 4),
    st.integers(1, 12).map(lambda n: n / 4),
    st.sampled_from([0.0, 100.0, 400.0, 700.0, 1000.0, 2500.0]),
)
queues = st.fixed_dictionaries(
    {q: st.lists(pieces, max_size=4) for q in (Queue.H2D, Queue.D2H, Queue.WEIGHTS, Queue.CPU)}
)


def executed(
    work: dict[Queue, list[Piece]], pool: float | None = POOL, *, told_late: bool = False
) -> tuple[dict[tuple[Queue, int], tuple[float, float]], FluidMemory]:
    """Start and end of every piece, each begun as soon as the one before it has ended.

    Args:
        told_late: what the CPU takes is told when it would have ended alone.
    """
    memory = FluidMemory(pool)
    found: dict[tuple[Queue, int], tuple[float, float]] = {}
    number = dict.fromkeys(work, 0)
    tell: list[tuple[float, float]] = []

    def begin(queue: Queue, after_s: float) -> None:
        if number[queue] == len(work[queue]):
            return
        piece = work[queue][number[queue]]
        late = told_late and queue is Queue.CPU
        start_s = after_s + piece.gap_s
        alone_s = inf if late else piece.alone_s
        memory.begin(queue, start_s, alone_s, piece.bytes_per_s)
        if late:
            tell.append((start_s + piece.alone_s, piece.alone_s))

    for queue in work:
        begin(queue, 0.0)
    while not memory.is_idle:
        if tell and tell[0][0] <= memory.next_s():
            memory.known(Queue.CPU, tell.pop()[1])
            continue
        for over in memory.advance():
            found[over.queue, number[over.queue]] = over.start_s, over.end_s
            number[over.queue] += 1
            begin(over.queue, over.end_s)
    return found, memory


def integrated(work: dict[Queue, list[Piece]], step: Fraction) -> dict[tuple[Queue, int], float]:
    """Ends by many small steps of time, in which everyone moves by what the pool gives."""
    ends: dict[tuple[Queue, int], float] = {}
    at = dict.fromkeys(work, 0)
    left = {q: work[q][0].alone_s if work[q] else 0.0 for q in work}
    ready = {q: work[q][0].gap_s if work[q] else inf for q in work}
    now = Fraction(0)
    while any(at[q] < len(work[q]) for q in work):
        going = [q for q in work if at[q] < len(work[q]) and ready[q] <= now]
        moving = [q for q in going if q is not Queue.WEIGHTS or Queue.H2D not in going]
        asked = sum(min(POOL, work[q][at[q]].bytes_per_s) for q in moving)
        for q in moving:
            slower = min(1.0, POOL / asked) if work[q][at[q]].bytes_per_s else 1.0
            left[q] -= slower * float(step)
        now += step
        for q in moving:
            if left[q] <= float(step) / 2:
                ends[q, at[q]] = float(now)
                at[q] += 1
                if at[q] < len(work[q]):
                    ready[q] = float(now) + work[q][at[q]].gap_s
                    left[q] = work[q][at[q]].alone_s
    return ends


@given(queues)
def test_no_more_bytes_go_through_than_there_are(work: dict[Queue, list[Piece]]) -> None:
    found, memory = executed(work)
    sizes = {
        (q, i): piece.alone_s * min(POOL, piece.bytes_per_s)
        for q in work
        for i, piece in enumerate(work[q])
    }
    assert set(found) == set(sizes)
    assert memory.moved_bytes == pytest.approx(sum(sizes.values()))
    moments = sorted({at for span in found.values() for at in span})
    for begin_s in moments:
        for end_s in [at for at in moments if at > begin_s]:
            within = sum(
                sizes[key]
                for key, (start_s, over_s) in found.items()
                if begin_s <= start_s and over_s <= end_s
            )
            assert within <= POOL * (end_s - begin_s) * (1 + 1e-9)


@given(queues)
def test_nobody_is_faster_than_alone_and_nobody_waits_where_there_is_enough(
    work: dict[Queue, list[Piece]],
) -> None:
    slow, _ = executed(work)
    free, _ = executed(work, None)
    for (queue, number), (start_s, end_s) in slow.items():
        piece = work[queue][number]
        assert end_s - start_s >= piece.alone_s * (1 - 1e-9)
        if queue is not Queue.WEIGHTS:
            begin_s, over_s = free[queue, number]
            assert over_s == begin_s + piece.alone_s


@settings(max_examples=20)
@given(queues)
def test_ends_are_those_of_small_steps(work: dict[Queue, list[Piece]]) -> None:
    """Each start and end is off by up to one step, and moves what comes behind it."""
    found, _ = executed(work)
    step = Fraction(1, 1000)
    ends = integrated(work, step)
    assert set(ends) == set(found)
    for key, end_s in ends.items():
        assert found[key][1] == pytest.approx(end_s, abs=(2 * len(ends) + 2) * float(step))


@given(queues)
def test_what_is_told_late_changes_nothing(work: dict[Queue, list[Piece]]) -> None:
    """What the CPU's work takes by itself is known when real work has ended, and not before."""
    at_once, _ = executed(work)
    late, _ = executed(work, told_late=True)
    assert set(late) == set(at_once)
    for key, span in at_once.items():
        assert late[key] == pytest.approx(span)
