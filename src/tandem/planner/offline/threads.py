"""How many threads work on the CPU in blocks of batches, by a profile's sweep over their number
(LM-Offload, section 4.2, algorithm 3: threads per operator are enumerated, and the best number is
rarely all of them; what is left serves loads and stores). Fewer may attend faster, while layers and
MLPs are multiplied faster by more: plans are searched for each number that is best for either.

Numbers are compared by what they reach while the link is busy, where that was measured, since
blocks of batches keep it so. Plans are priced by what they reach alone: in virtual time the link
takes its part of the host's memory itself, and would take it twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tandem.plan.disk_slots import THREADS as READERS
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.question import Question
from tandem.profiling.measurements import (
    AttentionTimes,
    HostMeasurements,
    LinearTimes,
    ThreadPoint,
)

AS_FAST = 0.97
"""Of the highest rate: numbers of threads that reach so much of it are as good as the best one, as
far as measuring can tell. The fewest of them leave most to others.
"""
_GIGA = 1e9


@dataclass(frozen=True, slots=True)
class PlannedThreads:
    """Threads that work on the CPU.

    Attributes:
        count: of them. most: that were measured.
        bytes_per_s: of keys and values that `count` attend to, or of weights that they multiply by
            where they do not attend; most_bytes_per_s: that `most` do. link_busy: beside it.
        readers: threads that read layers from disk meanwhile.
        attends: whether they attend; else they compute layers alone.
    """

    count: int
    most: int
    bytes_per_s: float
    most_bytes_per_s: float
    readers: int = 0
    attends: bool = True
    link_busy: bool = False

    def __str__(self) -> str:
        does, of = ("attend, to", "keys and values") if self.attends else ("compute, by", "weights")
        rate = f"{self.bytes_per_s / _GIGA:.3g} GB/s of {of}"
        if self.link_busy:
            rate += " beside a busy link"
        if self.count < self.most:
            rate += f", {self.most} to {self.most_bytes_per_s / _GIGA:.3g}"
        others = "launches"
        if self.readers:
            others += f" and the {self.readers} that read from disk"
        left = self.most - self.count
        rest = f"{left} left for {others}" if left else f"none left for {others}: they take turns"
        return f"{self.count} of {self.most} {does} {rate}; {rest}"


def best_point(measured: HostMeasurements) -> ThreadPoint | None:
    """The fewest threads that attend as fast as any number of those that were measured; None: none
    was.
    """
    most = max((point.busiest.attention_bytes_per_s for point in measured.sweep), default=0.0)
    fast = (p for p in measured.sweep if p.busiest.attention_bytes_per_s >= AS_FAST * most)
    return min(fast, key=lambda point: point.threads, default=None)


def by_threads(question: Question) -> Iterator[Question]:
    """The same by each number of threads that attends or multiplies faster than all smaller ones,
    the best for attention first; unchanged alone where no sweep tells.
    """
    measured = question.measured
    best = None if measured is None else best_point(measured)
    if measured is None or best is None or _point(measured) is None:
        yield question
        return
    yield at_threads(question, best)
    attention = linear = 0.0
    for point in sorted(measured.sweep, key=lambda point: point.threads):
        rates = point.busiest
        if rates.attention_bytes_per_s * AS_FAST > attention:
            attention = rates.attention_bytes_per_s
        elif rates.linear_bytes_per_s * AS_FAST <= linear:
            continue
        linear = max(linear, rates.linear_bytes_per_s)
        if point.threads != best.threads:
            yield at_threads(question, point)


def at_threads(question: Question, point: ThreadPoint) -> Question:
    """The same, attention and products on the CPU by as many threads; unchanged if they were
    measured so, or it is not known how they compare.
    """
    measured = question.measured
    before = None if measured is None else _point(measured)
    if measured is None or before is None or point.threads == before.threads:
        return question
    slower = before.alone.attention_bytes_per_s / point.alone.attention_bytes_per_s
    changed = replace(
        measured,
        threads=point.threads,
        attention=tuple(_scaled(times, slower) for times in measured.attention),
        linear=tuple(_by_others(times, before, point) for times in measured.linear),
    )
    return replace(question, measured=changed)


def planned_threads(
    question: Question, candidate: BlockCandidate, *, adapts: bool
) -> PlannedThreads | None:
    """Of a candidate for a question by so many threads; None where the CPU neither attends nor
    computes layers, or columns of MLPs, or nothing is known of its threads.

    Args:
        adapts: all sequences with their KV on the host may come to be attended.
    """
    measured = question.measured
    chosen = None if measured is None else _point(measured)
    attends = candidate.host_rows if adapts else candidate.cpu_rows
    computes = candidate.lent or candidate.columns
    if measured is None or chosen is None or not (attends or computes):
        return None
    most = max(measured.sweep, key=lambda point: point.threads)
    rate, rate_of_most = (
        each.busiest.attention_bytes_per_s if attends else each.busiest.linear_bytes_per_s
        for each in (chosen, most)
    )
    return PlannedThreads(
        chosen.threads,
        most.threads,
        rate,
        rate_of_most,
        READERS if candidate.on_disk else 0,
        attends=bool(attends),
        link_busy=chosen.beside_link is not None,
    )


def _point(measured: HostMeasurements) -> ThreadPoint | None:
    """The sweep's, of as many threads as all else was measured by."""
    alike = (point for point in measured.sweep if point.threads == measured.threads)
    return next(alike, None)


def _scaled(times: AttentionTimes, factor: float) -> AttentionTimes:
    seconds = tuple(tuple(factor * each for each in row) for row in times.surface.seconds)
    return replace(times, surface=replace(times.surface, seconds=seconds))


def _by_others(times: LinearTimes, before: ThreadPoint, point: ThreadPoint) -> LinearTimes:
    """Products of the fewest rows take as long as the sweep's, which reads weights; what more rows
    add is arithmetic, and the threads share it.
    """
    read = before.alone.linear_bytes_per_s / point.alone.linear_bytes_per_s
    computed = before.threads / point.threads
    seconds = tuple(
        tuple(read * row[0] + computed * max(0.0, each - row[0]) for each in row)
        for row in times.surface.seconds
    )
    return replace(times, surface=replace(times.surface, seconds=seconds))
