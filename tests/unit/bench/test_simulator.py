"""The simulator's suite, tiny: what rows there are, and that runs which differ are refused."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tandem.bench import simulator
from tandem.bench.simulator import (
    BOUND_PER_S,
    QUICK,
    SimulatedLoad,
    SimulatorBench,
    digest,
    planned,
    run_simulator,
)
from tandem.simulator.outcome import Outcome
from tandem.simulator.record import Record
from tandem.simulator.simulate import recorded

LOAD = SimulatedLoad("few", "20-30", 70)
BENCH = SimulatorBench((LOAD,), ("gpu-only", "rendezvous"), rounds=1)


def test_rows_hold_both_ways_against_the_bound() -> None:
    told: list[str] = []
    rows = run_simulator(BENCH, told.append)
    assert told == ["few: gpu-only", "few: rendezvous"]
    steps = [row for row in rows if row.metric == "steps per second"]
    assert [(row.variant, row.bound) for row in steps] == [
        ("gpu-only, steps skipped", BOUND_PER_S),
        ("gpu-only, every step", None),
        ("rendezvous, steps skipped", BOUND_PER_S),
        ("rendezvous, every step", None),
    ]
    assert all(row.value > 0 for row in steps)
    shares = [row.value for row in rows if row.metric == "share of steps skipped"]
    assert shares[0] > 0.1


def test_runs_that_differ_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*given: Any, skip: bool) -> tuple[Record, Outcome]:
        record, outcome = recorded(*given, skip=skip)
        record.finish_s["3"] += 1e-9 * skip
        return record, outcome

    monkeypatch.setattr(simulator, "recorded", wrong)
    with pytest.raises(RuntimeError, match="few, gpu-only: runs differ"):
        run_simulator(BENCH, lambda _: None)


@pytest.mark.parametrize(
    "change",
    [
        lambda record, outcome: record.tokens.update(["7"]),
        lambda record, outcome: record.progress.pop(),
        lambda record, outcome: replace(outcome, preemptions=1),
    ],
)
def test_a_digest_is_of_every_moment_and_token(
    change: Callable[[Record, Outcome], Outcome | None],
) -> None:
    record, outcome = recorded(planned(LOAD, "gpu-only"), LOAD.workload())
    before = digest(record, outcome)
    assert digest(record, replace(outcome, skipped_steps=0)) == before
    changed = change(record, outcome)
    assert digest(record, changed if isinstance(changed, Outcome) else outcome) != before


def test_64_requests_run_at_once() -> None:
    plan = planned(QUICK.loads[0], "ride-along").plan
    assert plan.max_num_seqs >= 64
    assert plan.max_host_seqs == 17  # one of which has its prompt read
    assert planned(QUICK.loads[0], "gpu-only").plan.max_host_seqs == 0


@pytest.mark.parametrize("strategy", SimulatorBench((LOAD,)).strategies)
def test_every_strategy_is_simulated(strategy: simulator.Simulated) -> None:
    plan = planned(LOAD, strategy).plan
    name, *hosted = strategy.split(", ")
    assert plan.strategy == name
    assert (plan.interposition_budget == 32) == (
        name in ("symmetric", "asymmetric", "neo", "apex", "auto")
    )
    if name == "auto":
        assert (plan.max_host_seqs > 0) == (hosted == ["hosted"])
