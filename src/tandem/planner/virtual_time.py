"""Virtual time: sweeps run on queues whose operations share the link and the host's memory.

Queues are in order, as the executors' are. What several operations use at once is *fluid*: an
operation's speed falls when the others' shares leave less. The host's memory is one pool for CPU
attention and for both directions of the link; of the link, small copies go before streamed weights.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tandem.plan.program import Queue
from tandem.planner.demand import Demand
from tandem.planner.schedule import QUEUES, Schedule

_ACCEL, _H2D, _D2H, _CPU, _WEIGHTS = (
    QUEUES.index(queue) for queue in (Queue.ACCEL, Queue.H2D, Queue.D2H, Queue.CPU, Queue.WEIGHTS)
)
_NEVER = float("inf")
_ROUNDING_S = 1e-15

_Entry = tuple[float, float, float, tuple[tuple[int, int], ...], tuple[int, int]]
"""A group: seconds alone, bytes per second of the host's memory, share of the link, waits; and
which sweep's which group it is.
"""


class Span(NamedTuple):
    """When a group ran.

    Attributes:
        queue: index into QUEUES.
        sweep, group: indices into the sweeps and into that one's groups.
    """

    queue: int
    begin_s: float
    end_s: float
    sweep: int
    group: int


OnSpan = Callable[[Span], None]


@dataclass(frozen=True, slots=True)
class SweepTime:
    """One sweep of many alike.

    Attributes:
        period_s: from one sweep's end to the next one's.
        accelerator_s, cpu_s, h2d_s, d2h_s: how long each is busy in it; h2d counts copies and
            loads.
        dram_bytes: moved in the host's memory.
    """

    period_s: float
    accelerator_s: float
    cpu_s: float
    h2d_s: float
    d2h_s: float
    dram_bytes: float


@dataclass(frozen=True, slots=True)
class PricedSweep:
    """A schedule and what its operations ask for, by `Schedule.ops`."""

    schedule: Schedule
    demands: tuple[Demand, ...]


def steady_sweep(
    sweeps: Sequence[PricedSweep], dram_bytes_per_s: float, on_span: OnSpan | None = None
) -> SweepTime:
    """Runs the sweeps one after the other, each submitted ahead; the last one is the result.

    Args:
        sweeps: at least two; the first ones bring the queues into the state that they keep.
        on_span: told of each group that ends up to the last sweep's end on the accelerator.
    """
    return _Run(sweeps, dram_bytes_per_s, on_span).result()


class _Run:
    """Event by event: start what can start, find who ends first, move everyone there."""

    def __init__(
        self, sweeps: Sequence[PricedSweep], dram_bytes_per_s: float, on_span: OnSpan | None
    ) -> None:
        self._dram, self._on_span = dram_bytes_per_s, on_span
        self._queues: list[list[_Entry]] = [[] for _ in QUEUES]
        self._groups: dict[tuple[int, ...], tuple[float, float, float]] = {}
        self._marks: list[int] = []  # of each sweep, groups on the accelerator up to its end
        for index, sweep in enumerate(sweeps):
            self._submit(index, sweep)
        self._ends: list[float] = []
        self._totals: list[tuple[float, ...]] = []

    def _submit(self, number: int, sweep: PricedSweep) -> None:
        base = [len(queue) for queue in self._queues]
        self._groups.clear()  # of another sweep, whose operations may cost something else
        for index, group in enumerate(sweep.schedule.groups):
            alone_s, dram_rate, link_share = self._of_group(group.ops, sweep.demands)
            waits = tuple([(queue, base[queue] + value) for queue, value in group.waits])
            entry = (alone_s, dram_rate, link_share, waits, (number, index))
            self._queues[group.queue].append(entry)
        self._marks.append(len(self._queues[_ACCEL]))

    def _of_group(
        self, ops: tuple[int, ...], demands: tuple[Demand, ...]
    ) -> tuple[float, float, float]:
        """Seconds alone, mean bytes per second in the host's memory, and share of the link."""
        if ops not in self._groups:
            members = [demands[op] for op in ops]
            alone_s = sum(member.alone_s for member in members)
            size = sum(member.alone_s * member.dram_bytes_per_s for member in members)
            rate = size / alone_s if alone_s else 0.0
            self._groups[ops] = alone_s, rate, members[0].link_share
        return self._groups[ops]

    def result(self) -> SweepTime:
        self._run()
        before, after = self._totals[-2:]
        spent = [b - a for a, b in zip(before, after, strict=True)]
        busy, dram_bytes = spent[:-1], spent[-1]
        return SweepTime(
            period_s=self._ends[-1] - self._ends[-2],
            accelerator_s=busy[_ACCEL],
            cpu_s=busy[_CPU],
            h2d_s=busy[_H2D],
            d2h_s=busy[_D2H],
            dram_bytes=dram_bytes,
        )

    def _run(self) -> None:
        queues, capacity = self._queues, self._dram
        indices = range(len(queues))
        done = [0] * len(queues)
        left = [0.0] * len(queues)  # seconds alone
        begun_s = [0.0] * len(queues)
        current: list[_Entry | None] = [None] * len(queues)
        active: list[int] = []
        busy = [0.0] * len(queues)
        now_s = dram_bytes = 0.0
        mark, next_mark = 0, self._marks[0]
        while True:
            for q in indices:
                if current[q] is not None or done[q] == len(queues[q]):
                    continue
                entry = queues[q][done[q]]
                for queue, value in entry[3]:
                    if done[queue] < value:
                        break
                else:
                    current[q] = entry
                    left[q] = entry[0]
                    begun_s[q] = now_s
                    active.append(q)
            speeds, dram_rate = _speeds(active, current, capacity)
            step_s = min(
                (left[q] / speed for q, speed in zip(active, speeds, strict=True) if speed),
                default=_NEVER,
            )
            assert step_s < _NEVER, "the sweeps wait for each other"
            now_s += step_s
            dram_bytes += dram_rate * step_s
            loads_only = current[_H2D] is None
            ended = False
            for q, speed in zip(active, speeds, strict=True):
                busy[_H2D if q == _WEIGHTS and loads_only else q] += step_s
                left[q] -= speed * step_s
                if left[q] <= _ROUNDING_S:
                    entry = current[q]
                    if self._on_span is not None and entry is not None:
                        self._on_span(Span(q, begun_s[q], now_s, *entry[4]))
                    current[q] = None
                    done[q] += 1
                    ended = True
            if ended:
                active = [q for q in active if current[q] is not None]
            if done[_ACCEL] == next_mark:
                self._ends.append(now_s)
                self._totals.append((*busy, dram_bytes))
                mark += 1
                if mark == len(self._marks):
                    return
                next_mark = self._marks[mark]


def _speeds(
    active: list[int], current: list[_Entry | None], capacity: float
) -> tuple[list[float], float]:
    """Of the operations under way, relative to alone, and what they draw from the host's memory."""
    speeds = [1.0] * len(active)
    demand = 0.0
    for i, q in enumerate(active):
        entry = current[q]
        assert entry is not None
        if q == _WEIGHTS:
            copy = current[_H2D]
            if copy is not None:
                speeds[i] = max(0.0, 1.0 - copy[2])
        demand += speeds[i] * entry[1]
    if demand <= capacity:
        return speeds, demand
    slower = capacity / demand
    for i, q in enumerate(active):
        entry = current[q]
        assert entry is not None
        if entry[1]:
            speeds[i] *= slower
    return speeds, capacity
