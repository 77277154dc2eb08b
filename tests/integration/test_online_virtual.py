"""The online bench in virtual time: the same figures on every machine."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.paced import TINY as MODEL

from tandem.bench.online.arrivals import Arrivals
from tandem.bench.online.bed import virtual_bed
from tandem.bench.online.cell import Load, OnlineCell
from tandem.bench.online.engine import build_engine
from tandem.bench.online.latency_rows import EACH, FIRST, executed_latencies, simulated_latencies
from tandem.bench.online.open_loop import serve
from tandem.bench.online.overall import OVER_BEST, PREDICTED, overall_rows
from tandem.bench.online.plans import engine_rows, plan_policies
from tandem.bench.online.plot import plot_online
from tandem.bench.online.rows import CHOOSING, best_other, describe, figures_of, rows_of
from tandem.bench.online.suite import BASELINE, CellOutcome, OnlineBench, run_online
from tandem.bench.online.window import steady_run
from tandem.bench.replay.replay import NOT_REPLAYED
from tandem.plan.stepped import stepped
from tandem.runtime.paced.perturbed_rates import Perturbation
from tandem.runtime.paced.virtual import VirtualClock
from tandem.spec.hardware_file import load_hardware

SMALL = load_hardware("small")
TRUTH = Perturbation(1, 0.3, 8, 0.02)
ARRIVALS = Arrivals((0.2, 1.5), 30)


def cell_of(load: Load) -> OnlineCell:
    """Room for a few sequences on the accelerator and for more on the host."""
    card = replace(SMALL.accelerator, memory_bytes=80 << 20)
    hardware = replace(SMALL, accelerator=card, host=replace(SMALL.host, memory_bytes=4 << 20))
    return OnlineCell("tiny", MODEL, MODEL, load, hardware, TRUTH, 64)


def outcome_of(policies: tuple[str, ...], pairs: int, arrivals: Arrivals) -> CellOutcome:
    bench = OnlineBench(policies, pairs, 0.01, virtual=True, arrivals=arrivals, replays=False)
    (found,) = run_online(bench, [cell_of(Load(20, 12))], lambda _: None)
    return found


@pytest.fixture(scope="module")
def outcome() -> CellOutcome:
    """Prompts and outputs."""
    return outcome_of(("simple", "gpu-only/16"), 3, ARRIVALS)


def test_figures_are_the_same_again() -> None:
    one, again = (rows_of(outcome_of((BASELINE,), 1, Arrivals((0.5,), 8))) for _ in range(2))
    assert one == again


@pytest.mark.parametrize("policy", ["gpu-only", "simple"])
def test_the_time_of_others_windows_is_not_idle(policy: str) -> None:
    cell, clock = cell_of(Load(1, 40)), VirtualClock()
    bed = replace(virtual_bed(cell), clock=lambda: clock)
    (planned,) = plan_policies(bed.question, (policy,))
    run = steady_run(cell, bed, planned, 0.05)
    try:
        for _ in range(3):
            clock.wait(clock.now() + 100.0)  # another plan's turn
            window = run.measure()
            idle = window.overlap.accel_idle_share
            assert idle == pytest.approx(1 - window.report.accel_busy, abs=0.02)
    finally:
        run.close()


def test_nothing_of_the_machine_it_runs_on_shows(outcome: CellOutcome) -> None:
    rows = rows_of(outcome)
    assert all(row.variant.startswith("virtual ") for row in rows)
    assert not {"windows valid", "scheduler core busy"} & {row.metric for row in rows}
    assert "INVALID" not in "\n".join(describe(outcome))


def test_the_accelerator_alone_reads_prompts_in_chunks_of_the_size_named(
    outcome: CellOutcome,
) -> None:
    steps = {each.policy: each.plan.max_num_batched_tokens for each in outcome.planned if each.plan}
    assert steps == {"auto": 64, "gpu-only": 64, "simple": 64, "gpu-only/16": 16}
    rates = {each.policy: each.executed for each in figures_of(outcome)}
    assert rates["gpu-only/16"] != rates["gpu-only"]


def test_all_sizes_of_chunks_are_tried_where_there_are_prompts() -> None:
    bench = OnlineBench()
    with_prompts = set(bench.names(cell_of(Load(20, 12))))
    assert with_prompts - set(bench.names(cell_of(Load(1, 12)))) == {
        "gpu-only/16",
        "gpu-only/32",
        "gpu-only/64",
        "gpu-only/128",
    }


def test_what_is_simulated_and_predicted_stands_beside_what_is_executed(
    outcome: CellOutcome,
) -> None:
    figures = {each.policy: each for each in figures_of(outcome)}
    for policy in ("auto", "gpu-only/16"):  # links of this cell are all latency, and 30% off
        assert figures[policy].simulated == pytest.approx(figures[policy].executed, rel=0.08)
    assert len({each.plan for each in outcome.planned}) == 3
    own = [figures[policy] for policy in ("gpu-only", "simple", "gpu-only/16")]
    predicted, simulated, equal, worst = overall_rows(rows_of(outcome))
    assert (
        predicted.value == sorted(abs((each.predicted or 0) / each.executed - 1) for each in own)[1]
    )
    assert simulated.value == sorted(abs(each.simulated / each.executed - 1) for each in own)[1]
    assert simulated.case == "all cells, 3 plans"
    best = max(own, key=lambda each: each.executed)
    assert figures["auto"].auto_over is None
    limit = 1.0 if best.auto_over is None else best.auto_over.lower_95
    assert limit is not None
    assert (equal.value, worst.value) == (float(limit >= 1), limit)
    assert worst.case == "all cells, 1"


def test_requests_wait_where_more_come_than_are_served(outcome: CellOutcome) -> None:
    assert {point.share for point in outcome.points} == {0.2, 1.5}
    for policies in {point.policies for point in outcome.points}:
        few, many = (point for point in outcome.points if point.policies == policies)
        assert many.requests_per_s == pytest.approx(7.5 * few.requests_per_s)
        waits = [executed_latencies(point)[FIRST] for point in (few, many)]
        assert all(each.p50_s <= each.p90_s <= each.p99_s for each in waits)
        assert waits[0].p99_s < waits[1].p99_s
        assert few.served.tokens_per_s < many.served.tokens_per_s
        for point in (few, many):
            assert len(point.served.latencies.ttft_s) == ARRIVALS.requests
            if "auto" in policies:  # see above
                said, found = simulated_latencies(point), executed_latencies(point)
                assert said[EACH].p50_s == pytest.approx(found[EACH].p50_s, rel=0.1)


def test_a_request_that_comes_alone_waits_for_nobody() -> None:
    cell = cell_of(Load(20, 12))
    bed = virtual_bed(cell)
    (planned,) = plan_policies(bed.question, ("gpu-only",))
    served = {}
    for rate in (0.01, 1e9):
        clock = bed.clock()
        engine = build_engine(cell, bed, planned, clock)
        served[rate] = serve(engine.core, cell.load.workload(8, rate), clock)
        engine.core.close()
    alone, together = served[0.01].latencies, served[1e9].latencies
    assert max(alone.ttft_s) < 1.2 * min(alone.ttft_s)
    assert max(together.ttft_s) > 1.2 * max(alone.ttft_s)
    assert len(alone.tpot_s) == len(alone.latency_s) == 8
    assert served[0.01].tokens_per_s == pytest.approx(12 * 0.01, rel=0.8)


def test_the_engines_own_strategies_choose_each_step_of_the_best_plan(tmp_path: Path) -> None:
    bench = OnlineBench(
        (BASELINE,), 3, 0.01, virtual=True, replays=False, strategies=("auto", "neo", "apex")
    )
    ended: list[CellOutcome] = []
    (found,) = run_online(bench, [cell_of(Load(20, 12))], lambda _: None, ended.append)
    assert ended == [found]
    assert found.planned[0].plan is not None
    plans = {each.policy: each.plan for each in found.planned}
    for name in bench.strategies:
        assert plans[f"engine {name}"] == stepped(found.planned[0].plan, name)
    rows = rows_of(found)
    told = {(row.variant, row.metric) for row in rows}
    for name in bench.strategies:
        assert (f"virtual engine {name}", "over gpu-only, lower 95%") in told
        assert (f"virtual engine {name}", PREDICTED) not in told
    for chooser in CHOOSING:
        own = [row for row in rows if row.variant == f"virtual {chooser}"]
        limit = next(row.value for row in own if row.metric == OVER_BEST)
        best = best_other(figures_of(found), chooser)
        assert best is not None
        assert best.policy != chooser
        assert limit == best.lower_95
    over_all = [row.variant for row in overall_rows(rows)]
    each = [f"virtual {chooser}" for chooser in CHOOSING]
    assert over_all == ["virtual all"] * 2 + [each[0]] * 2 + [each[1]] * 2
    text = "\n".join(describe(found))
    assert text.count("; each step chosen by ") == 3
    plot_online([found], tmp_path / "cell.png")


def test_strategies_that_the_plans_layers_forbid_cannot_run() -> None:
    cell = cell_of(Load(20, 12))
    (auto,) = plan_policies(virtual_bed(cell).question, ("zero-inference",))
    assert auto.plan is not None
    neo, apex = engine_rows(auto, ("neo", "apex"))
    assert neo.plan is None
    assert "cannot run this: --strategy neo needs all layers on the accelerator" in neo.describe()
    assert apex.plan == stepped(auto.plan, "apex")
    assert apex.predicted_per_s is None


def test_it_is_drawn_with_what_requests_wait_and_without(
    outcome: CellOutcome, tmp_path: Path
) -> None:
    pictures = tmp_path / "both.png", tmp_path / "rates.png"
    plot_online([outcome, outcome], pictures[0])
    plot_online([replace(outcome, points=())], pictures[1])
    for picture in pictures:
        assert picture.read_bytes().startswith(b"\x89PNG")


def test_lines_tell_of_each_rate_and_that_nothing_was_replayed(outcome: CellOutcome) -> None:
    lines = describe(outcome)
    assert not [line for line in lines if line.rstrip().endswith(";")]
    text = "\n".join(lines)
    assert text.count(NOT_REPLAYED) == 1
    assert "20% of gpu-only's" in text
    assert "150% of gpu-only's" in text
    assert text.count("first token") == len(outcome.points)


@pytest.mark.parametrize("bounds", [(3, 2), (2, 3)])
def test_the_gain_stands_beside_the_smaller_bound(
    outcome: CellOutcome, bounds: tuple[float, float]
) -> None:
    assert outcome.bound is not None
    alone, auto = (
        next(each for each in figures_of(outcome) if each.policy == policy)
        for policy in (BASELINE, "auto")
    )
    most, of_plans = (times * alone.executed for times in bounds)
    bound = replace(outcome.bound, tokens_per_s=most, of_plans=of_plans)
    faster = tuple(replace(w, tokens_per_s=1.5 * w.tokens_per_s) for w in auto.windows)
    plans = tuple(
        replace(each, plan=replace(each.plan, max_num_seqs=1)) if each.policy == "auto" else each
        for each in outcome.planned
        if each.plan is not None
    )
    gained = replace(
        outcome, bound=bound, planned=plans, windows={**outcome.windows, "auto": faster}
    )
    rows = {row.metric: row for row in rows_of(gained) if row.variant == "virtual auto"}
    assert rows["gain over gpu-only"].value == pytest.approx(0.5)
    assert rows["gain over gpu-only"].fraction == pytest.approx(0.5)
    assert ", 50% of the gain that neither bound excludes" in "\n".join(describe(gained))
