"""How many threads attend on the CPU in blocks of batches, by a profile's sweep over their number
(LM-Offload, section 4.2, algorithm 3: threads per operator are enumerated, and the best number is
rarely all of them; what is left serves loads and stores).
"""

from dataclasses import dataclass, replace

from tandem.plan.disk_slots import THREADS as READERS
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.question import Question
from tandem.profiling.measurements import AttentionTimes, HostMeasurements, ThreadPoint

_AS_FAST = 0.97
"""Of the highest rate: numbers of threads that reach so much of it are as good as the best one, as
far as measuring can tell. The fewest of them leave most to others.
"""
_GIGA = 1e9


@dataclass(frozen=True, slots=True)
class PlannedThreads:
    """Threads that attend on the CPU.

    Attributes:
        count: of them. most: that were measured.
        bytes_per_s: of keys and values that `count` attend to; most_bytes_per_s: that `most` do.
        readers: threads that read layers from disk meanwhile.
    """

    count: int
    most: int
    bytes_per_s: float
    most_bytes_per_s: float
    readers: int = 0

    def __str__(self) -> str:
        rate = f"{self.bytes_per_s / _GIGA:.3g} GB/s of keys and values"
        if self.count < self.most:
            rate += f", {self.most} to {self.most_bytes_per_s / _GIGA:.3g}"
        others = "launches"
        if self.readers:
            others += f" and the {self.readers} that read from disk"
        left = self.most - self.count
        rest = f"{left} left for {others}" if left else f"none left for {others}: they take turns"
        return f"{self.count} of {self.most} attend, to {rate}; {rest}"


def best_point(measured: HostMeasurements) -> ThreadPoint | None:
    """The fewest threads that attend as fast as any number of those that were measured; None: none
    was.
    """
    most = max((point.attention_bytes_per_s for point in measured.sweep), default=0.0)
    fast = (p for p in measured.sweep if p.attention_bytes_per_s >= _AS_FAST * most)
    return min(fast, key=lambda point: point.threads, default=None)


def at_best_threads(question: Question) -> Question:
    """The same, attention on the CPU by as many threads as are best for it; unchanged where no
    sweep tells, or if it was measured so.
    """
    measured = question.measured
    best = None if measured is None else best_point(measured)
    if measured is None or best is None or best.threads == measured.threads:
        return question
    as_measured = [p for p in measured.sweep if p.threads == measured.threads]
    if not as_measured:
        return question
    factor = as_measured[0].attention_bytes_per_s / best.attention_bytes_per_s
    attention = tuple(_slower(times, factor) for times in measured.attention)
    return replace(question, measured=replace(measured, threads=best.threads, attention=attention))


def planned_threads(
    question: Question, candidate: BlockCandidate, *, adapts: bool
) -> PlannedThreads | None:
    """Of a candidate for a question at its best threads; None where nobody may be attended on the
    CPU, or nothing is known of its threads.

    Args:
        adapts: all sequences with their KV on the host may come to be.
    """
    measured = question.measured
    best = None if measured is None else best_point(measured)
    if measured is None or best is None or measured.threads != best.threads:
        return None
    if not (candidate.host_rows if adapts else candidate.cpu_rows):
        return None
    most = max(measured.sweep, key=lambda point: point.threads)
    return PlannedThreads(
        best.threads,
        most.threads,
        best.attention_bytes_per_s,
        most.attention_bytes_per_s,
        READERS if candidate.on_disk else 0,
    )


def _slower(times: AttentionTimes, factor: float) -> AttentionTimes:
    surface = times.surface
    seconds = tuple(tuple(factor * each for each in row) for row in surface.seconds)
    return replace(times, surface=replace(surface, seconds=seconds))
