"""The scheduler's part of the engine suite, tiny: what rows there are, not how fast they came."""

from tandem.bench.records import BenchRow
from tandem.bench.scheduler_load import SchedulerLoad
from tandem.bench.scheduler_time import SchedulerBench, measure_scheduler
from tandem.plan.strategy_names import STRATEGIES
from tandem.scheduler.strategies.registry import make_strategy

EVERY = {*STRATEGIES, "all propose"}


def test_rows_cover_every_strategy_and_size() -> None:
    told: list[str] = []
    bench = SchedulerBench(running=(2, 4), rounds=2, steps=3, warm_up=2)
    rows = measure_scheduler(bench, told.append)
    assert len(told) == len(EVERY)
    steps = {(row.case, row.metric): [] for row in rows}
    for row in rows:
        steps[row.case, row.metric].append(row)
    assert set(steps) == {
        ("scheduler, steady decode, 2 running", "time per step, median"),
        ("scheduler, steady decode, 2 running", "time per step, p99"),
        ("scheduler, steady decode, 4 running", "time per step, median"),
        ("scheduler, steady decode, 4 running", "time per step, p99"),
        ("scheduler, steady decode, 2 to 4 running", "growth of the median"),
    }
    assert all({row.variant for row in found} == EVERY for found in steps.values())
    assert all(_is_sound(row) for row in rows)


def _is_sound(row: BenchRow) -> bool:
    assert row.spread is not None
    return row.value > 0 and row.spread[0] <= row.spread[1] and row.fraction is not None


def test_steps_decode_every_row_where_its_kv_should_lie() -> None:
    load = SchedulerLoad(make_strategy("ride-along"), 6)
    before = load.known_tokens()
    load.step()
    assert load.known_tokens() - before == 6
    assert load.rows_with_host_kv() == 3
