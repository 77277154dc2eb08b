"""Engine suite, part one: what the scheduler alone costs per step of steady decode.

Processor time of the thread, not wall time, so that other processes do not count.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tandem.bench.records import BenchRow, row_of_samples
from tandem.bench.scheduler_load import AllPropose, SchedulerLoad
from tandem.plan.strategy_names import STRATEGIES
from tandem.scheduler.strategies.base import Strategy
from tandem.scheduler.strategies.registry import make_strategy

MEDIAN_BOUND_MS = 0.5
P99_BOUND_MS = 2.0
GROWTH_BOUND = 1.5


@dataclass(frozen=True, slots=True)
class SchedulerBench:
    """How much to measure.

    Attributes:
        running: numbers of running requests; growth is from the one before the last to the last.
        rounds, steps: each round takes so many steps of every size in turn.
        warm_up: steps before the first round, so that every row has passed a block's end.
    """

    running: tuple[int, ...] = (16, 256, 1000)
    rounds: int = 10
    steps: int = 100
    warm_up: int = 70


def measure_scheduler(bench: SchedulerBench, report: Callable[[str], None]) -> tuple[BenchRow, ...]:
    """Rows of all strategies, by number of running requests."""
    rows: list[BenchRow] = []
    for strategy in _strategies():
        report(f"scheduler: {strategy.name} with {', '.join(map(str, bench.running))} running")
        loads = {count: SchedulerLoad(strategy, count) for count in bench.running}
        for load in loads.values():
            _take(load, bench.warm_up)
        rounds = [
            {count: _take(load, bench.steps) for count, load in loads.items()}
            for _ in range(bench.rounds)
        ]
        for count in bench.running:
            rows += _step_rows(strategy.name, count, [taken[count] for taken in rounds])
        rows.append(_growth_row(strategy.name, bench.running[-2], bench.running[-1], rounds))
    cases = list(dict.fromkeys(row.case for row in rows))
    return tuple(sorted(rows, key=lambda row: (cases.index(row.case), row.metric)))


def _strategies() -> tuple[Strategy, ...]:
    """Every one by itself, and all asked in each step, of which the first is followed."""
    asked = ("ride-along", *(name for name in STRATEGIES if name != "ride-along"))
    return (*map(make_strategy, STRATEGIES), AllPropose(*map(make_strategy, asked)))


def _take(load: SchedulerLoad, steps: int) -> list[float]:
    return [load.step() * 1e3 for _ in range(steps)]


def _step_rows(strategy: str, count: int, rounds: list[list[float]]) -> tuple[BenchRow, BenchRow]:
    """Over all steps; the spread is that of single rounds."""
    case = f"scheduler, steady decode, {count} running"
    samples = [ms for taken in rounds for ms in taken]
    metrics = (
        ("time per step, median", statistics.median, MEDIAN_BOUND_MS),
        ("time per step, p99", _p99, P99_BOUND_MS),
    )
    first, second = (
        BenchRow(case, strategy, name, of(samples), "ms CPU", bound, _spread(map(of, rounds)))
        for name, of, bound in metrics
    )
    return first, second


def _growth_row(
    strategy: str, before: int, after: int, rounds: Sequence[Mapping[int, list[float]]]
) -> BenchRow:
    growth = [statistics.median(t[after]) / statistics.median(t[before]) for t in rounds]
    return row_of_samples(
        f"scheduler, steady decode, {before} to {after} running",
        strategy,
        "growth of the median",
        growth,
        "ratio",
        GROWTH_BOUND,
    )


def _p99(samples: Sequence[float]) -> float:
    return sorted(samples)[math.ceil(0.99 * len(samples)) - 1]


def _spread(values: Iterable[float]) -> tuple[float, float]:
    found = list(values)
    return min(found), max(found)
