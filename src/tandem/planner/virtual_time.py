"""Virtual time: sweeps run on queues whose operations share the link and the host's memory.

Queues are in order, as the executors' are. What several operations use at once is *fluid*: an
operation's speed falls when the others' shares leave less. The host's memory is one pool for CPU
attention and for both directions of the link; of the link, small copies go before streamed weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tandem.plan.program import Queue
from tandem.planner.demand import Demand
from tandem.planner.schedule import QUEUES, Schedule

_ACCEL, _H2D, _D2H, _CPU, _WEIGHTS = (
    QUEUES.index(queue)
    for queue in (Queue.ACCEL, Queue.H2D, Queue.D2H, Queue.CPU, Queue.WEIGHTS)
)
_NEVER = float("inf")


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


def steady_sweep(sweeps: Sequence[PricedSweep], dram_bytes_per_s: float) -> SweepTime:
    """Runs the sweeps one after the other, each submitted ahead; the last one is the result.

    Args:
        sweeps: at least two; the first ones bring the queues into the state that they keep.
    """
    return _Run(sweeps, dram_bytes_per_s).result()


class _Run:
    """Event by event: start what can start, find who ends first, move everyone there."""

    def __init__(self, sweeps: Sequence[PricedSweep], dram_bytes_per_s: float) -> None:
        self._dram = dram_bytes_per_s
        self._queues: list[list[tuple[float, float, float, tuple[tuple[int, int], ...]]]] = [
            [] for _ in QUEUES
        ]
        self._marks: list[int] = []  # of each sweep, groups on the accelerator up to its end
        for sweep in sweeps:
            self._submit(sweep)
        self._ends: list[float] = []
        self._totals: list[tuple[float, ...]] = []

    def _submit(self, sweep: PricedSweep) -> None:
        base = [len(queue) for queue in self._queues]
        for group in sweep.schedule.groups:
            first = sweep.demands[group.ops[0]]
            alone_s = first.alone_s
            for op in group.ops[1:]:
                alone_s += sweep.demands[op].alone_s
            waits = tuple((queue, base[queue] + value) for queue, value in group.waits)
            self._queues[group.queue].append(
                (alone_s, first.dram_bytes_per_s, first.link_share, waits)
            )
        self._marks.append(len(self._queues[_ACCEL]))

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
        sizes = [len(queue) for queue in queues]
        done = [0] * len(queues)
        left = [0.0] * len(queues)  # seconds alone
        running = [False] * len(queues)
        busy = [0.0] * len(queues)
        now_s = dram_bytes = 0.0
        mark = 0
        indices = range(len(queues))
        while True:
            for q in indices:
                if running[q] or done[q] == sizes[q]:
                    continue
                entry = queues[q][done[q]]
                for queue, value in entry[3]:
                    if done[queue] < value:
                        break
                else:
                    running[q] = True
                    left[q] = entry[0]
            active = [q for q in indices if running[q]]
            speeds = [1.0] * len(active)
            demand = 0.0
            for i, q in enumerate(active):
                entry = queues[q][done[q]]
                if q == _WEIGHTS and running[_H2D]:
                    speeds[i] = max(0.0, 1.0 - queues[_H2D][done[_H2D]][2])
                demand += speeds[i] * entry[1]
            if demand > capacity:
                for i, q in enumerate(active):
                    if queues[q][done[q]][1]:
                        speeds[i] *= capacity / demand
                demand = capacity
            step_s = _NEVER
            for i, q in enumerate(active):
                if speeds[i] and left[q] / speeds[i] < step_s:
                    step_s = left[q] / speeds[i]
            assert step_s < _NEVER, "the sweeps wait for each other"
            now_s += step_s
            dram_bytes += demand * step_s
            for q in active:
                busy[_H2D if q == _WEIGHTS and not running[_H2D] else q] += step_s
            for i, q in enumerate(active):
                left[q] -= speeds[i] * step_s
                if left[q] <= 1e-15:
                    running[q] = False
                    done[q] += 1
            if done[_ACCEL] == self._marks[mark]:
                self._ends.append(now_s)
                self._totals.append((*busy, dram_bytes))
                mark += 1
                if mark == len(self._marks):
                    return
