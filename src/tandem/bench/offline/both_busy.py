"""How long of a job's passes the CPU and the link to the accelerator work, and both at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tandem.plan.executed_op import ExecutedOp
from tandem.plan.program import Queue

_TO_ACCELERATOR = (Queue.H2D, Queue.WEIGHTS)
_Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class BothBusy:
    """An operation listener; [begin, end) in seconds.

    Attributes:
        passes: when passes ran; whoever runs them says so.
        cpu, link: when each of both worked.
    """

    passes: list[_Interval] = field(default_factory=list[_Interval])
    cpu: list[_Interval] = field(default_factory=list[_Interval])
    link: list[_Interval] = field(default_factory=list[_Interval])

    def executed(self, ran: ExecutedOp) -> None:
        """An operation has ended."""
        if ran.op.queue is Queue.CPU:
            self.cpu.append((ran.start_s, ran.end_s))
        elif ran.op.queue in _TO_ACCELERATOR:
            self.link.append((ran.start_s, ran.end_s))

    @property
    def link_s(self) -> float:
        """How long of passes the link worked."""
        return _length_s(_common(_joined(self.passes), _joined(self.link)))

    @property
    def both_s(self) -> float:
        """How long of them both did."""
        both = tuple(_common(_joined(self.cpu), _joined(self.link)))
        return _length_s(_common(_joined(self.passes), both))


def _joined(intervals: Sequence[_Interval]) -> list[_Interval]:
    """In order, those that overlap or touch as one."""
    found: list[_Interval] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def _common(one: Sequence[_Interval], other: Sequence[_Interval]) -> Iterator[_Interval]:
    """What lies in both; each is in order and without overlaps."""
    i = j = 0
    while i < len(one) and j < len(other):
        begin, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if begin < end:
            yield begin, end
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1


def _length_s(intervals: Iterator[_Interval]) -> float:
    return sum(end - begin for begin, end in intervals)
