"""`tandem bench overlap`: strategies in virtual time, as shares and as a picture."""

from dataclasses import replace

import pytest

from tandem.bench import overlap
from tandem.bench.overlap import OverlapBench, StrategyOverlap, rows_of, run_overlap
from tandem.cli.overlap_text import overlap_text
from tandem.plan.program import Part, Queue
from tandem.spec.errors import ConfigError, TandemError

SMALL = OverlapBench(
    layers=3,
    context=256,
    device_rows=4,
    host_rows=4,
    strategies=("gpu-only", "ride-along", "rendezvous"),
)
WIDTH = 60


@pytest.fixture(scope="module")
def outcomes() -> dict[str, StrategyOverlap]:
    return {each.strategy: each for each in run_overlap(SMALL, lambda what: None)}


def test_each_strategy_does_what_it_is_there_for(outcomes: dict[str, StrategyOverlap]) -> None:
    alone, rides, crosses = outcomes.values()
    assert alone.rows == {"device": 4}
    assert rides.rows == crosses.rows == {"device": 4, "host": 4}
    assert alone.totals.hidden_share is None
    assert alone.cycle.busy(Queue.CPU, 0.0, alone.cycle.period_s) == 0
    hidden = [each.totals.hidden_share or 0.0 for each in (rides, crosses)]
    assert hidden[0] < hidden[1]
    assert hidden[1] > 0.9
    # both ways the host's requests come on top; those that cross wait for a sweep per layer
    assert rides.totals.step_s > alone.totals.step_s
    assert crosses.tokens_per_s > alone.tokens_per_s


def test_a_step_has_all_of_its_operations(outcomes: dict[str, StrategyOverlap]) -> None:
    for each in outcomes.values():
        spans = each.cycle.on(Queue.ACCEL)
        assert sum(span.op.part is Part.HEAD for span in spans) >= 1
        assert list(each.layers) == [0, 1, 2]
        assert sorted(each.layers.values()) == list(each.layers.values())
        busy = each.cycle.busy(Queue.ACCEL, 0.0, each.cycle.period_s)
        idle = each.totals.accel_idle_share
        assert idle is not None
        assert busy == pytest.approx(1 - idle, abs=0.15)


def test_the_picture_is_as_wide_as_asked_and_says_the_shares(
    outcomes: dict[str, StrategyOverlap],
) -> None:
    text = "\n".join(overlap_text(list(outcomes.values()), WIDTH))
    lines = text.splitlines()
    assert "virtual time" in lines[0]
    rows = [line[12:] for line in lines if line.startswith(("  accel ", "  cpu "))]
    assert len(rows) == 3 * 4
    assert {len(row) for row in rows} == {WIDTH}
    rulers = [line.split()[1:] for line in lines if line.startswith("  layer ")]
    assert rulers == [["0", "1", "2"]] * 3
    assert text.count("accelerator idle") == 3
    assert text.count("of it hidden") == 2


def test_rows_of_the_record(outcomes: dict[str, StrategyOverlap]) -> None:
    rows = rows_of(SMALL, list(outcomes.values()))
    assert {row.variant for row in rows} == {f"virtual {name}" for name in SMALL.strategies}
    shares = [row.value for row in rows if row.metric == "CPU attention hidden"]
    assert len(shares) == 2
    assert all(0 <= share <= 1 for share in shares)


def test_a_longer_window_gives_the_same_throughput(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cohorts give their tokens out in bursts: a window that cuts one is off by percents."""
    crossing = replace(SMALL, strategies=("rendezvous",), host_rows=12)
    found: list[float] = []
    for rounds in (7, 8, 9):
        monkeypatch.setattr(overlap, "_ROUNDS", rounds)
        (outcome,) = run_overlap(crossing, lambda what: None)
        assert outcome.spread[0] <= outcome.tokens_per_s <= outcome.spread[1]
        found.append(outcome.tokens_per_s)
    assert max(found) == pytest.approx(min(found), rel=0.002)


def test_a_strategy_that_cannot_be_here_is_left_out_with_a_note() -> None:
    told: list[str] = []
    wide = OverlapBench("t4-scaled", context=64, device_rows=2, host_rows=2)
    found = run_overlap(replace(wide, strategies=("asymmetric", "gpu-only")), told.append)
    assert [each.strategy for each in found] == ["gpu-only"]
    assert [line for line in told if "asymmetric is left out: --strategy asymmetric needs" in line]
    with pytest.raises(ConfigError, match="needs all layers"):
        run_overlap(replace(wide, strategies=("asymmetric",)), told.append)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategies": ("gpu-only", "fastest")}, "unknown strategy 'fastest'"),
        ({"layers": 99}, "llama-3.1-8b has 32 layers; lower --layers"),
        ({"device_rows": 900}, "do not fit"),
        ({"model": "llama-9"}, "llama-9"),
    ],
)
def test_what_cannot_be_run_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(TandemError, match=message):
        run_overlap(replace(SMALL, **changes), lambda what: None)
