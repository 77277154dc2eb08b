"""Whole runs: what must hold of each, and sums done by other means."""

from dataclasses import replace
from itertools import pairwise

import pytest
from tests.support.planned_option import option_of
from tests.unit.planner.questions import ask
from tests.unit.simulator.setups import CASES, LAYERS, Case, planned, serve, workload

from tandem.planner.fluid.schedule import Schedules
from tandem.planner.footprint import Footprint
from tandem.planner.load import LaneLoad, TierLoad
from tandem.planner.sensitivity import with_cores
from tandem.planner.sweep_load import SweepLoad
from tandem.planner.sweeps import Sweeps
from tandem.scheduler.scheduler import Scheduler
from tandem.simulator.build import Planned, plan_for
from tandem.simulator.outcome import Outcome
from tandem.simulator.simulate import simulate
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.precision import Precision
from tandem.spec.tier import TIERS


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rate", [None, 40.0])
def test_every_request_ends_with_all_its_tokens_and_nothing_is_left(
    name: str, rate: float | None
) -> None:
    requests = workload(generate="5-40", requests=14, rate=rate)
    served = serve(planned(CASES[name]), requests, watch=lambda _, scheduler: scheduler.check())
    wanted = {str(i): shape.generated_tokens for i, shape in enumerate(requests.requests)}
    assert dict(served.record.tokens) == wanted
    assert set(served.record.finish_s) == set(served.record.first_s) == set(wanted)
    scheduler, outcome = served.machine.scheduler, served.outcome
    assert not scheduler.has_work
    assert all(scheduler.kv.pools[tier].counts().held == 0 for tier in TIERS)
    assert outcome.output_tokens == sum(wanted.values())
    assert all(0 <= share <= 1 + 1e-9 for share in outcome.busy.values())
    assert outcome.hidden_share is None or 0 <= outcome.hidden_share <= 1
    assert (outcome.busy["CPU"] > 0) == (CASES[name].host_rows + CASES[name].on_cpu > 0)
    if name == "preempting" and rate is None:
        assert outcome.preemptions > 0


@pytest.mark.parametrize("name", CASES)
def test_a_run_is_a_function_of_its_seed(name: str) -> None:
    plan = planned(CASES[name])

    def run(seed: int) -> Outcome:
        return simulate(plan, workload(generate="5-40", requests=8, rate=30.0, seed=seed))

    first = run(1)
    assert run(1) == first != run(2)


@pytest.mark.parametrize("name", ["gpu-only", "ride-along", "rendezvous", "preempting"])
def test_littles_law(name: str) -> None:
    """Requests in the scheduler, a mean over time, are the rate times their mean latency."""
    seen: list[tuple[float, int]] = [(0.0, 0)]

    def watch(now_s: float, scheduler: Scheduler) -> None:
        seen.append((now_s, scheduler.running.count))

    requests = workload(generate="5-40", rate=30.0, requests=30)
    outcome = serve(planned(CASES[name]), requests, watch=watch).outcome
    area = sum(count * (end - begin) for (begin, count), (end, _) in pairwise(seen))
    per_s = outcome.requests / outcome.duration_s
    assert area / outcome.duration_s == pytest.approx(per_s * outcome.latency.mean_s)
    assert outcome.mean_running == pytest.approx(area / outcome.duration_s)


@pytest.mark.parametrize(
    ("case", "tolerance"),
    [
        (Case("gpu-only", 1, 0), 1e-9),
        (Case("gpu-only", 1, 0, gemma=True), 1e-9),
        (Case("gpu-only", 1, 0, streamed=6), 1e-3),
        (Case("ride-along", 0, 1), 1e-3),
        (Case("gpu-only", 1, 0, streamed=6, on_cpu=4, how="host"), 1e-3),
        (Case("gpu-only", 1, 0, on_cpu=4, how="cpu"), 1e-3),
        (Case("ride-along", 0, 1, on_cpu=4, how="cpu"), 1e-3),
        (Case("gpu-only", 1, 0, on_cpu=4, how="cpu-mlp", gemma=True), 1e-3),
    ],
    ids=["resident", "windows", "streamed", "host", "lent", "cpu", "cpu and host", "MLPs"],
)
def test_a_single_request_takes_the_planner_s_sweeps(case: Case, tolerance: float) -> None:
    plan = planned(case, "300", "60", 1)
    served = serve(plan, workload("300", "60", 1))
    times = [time_s for time_s, _ in served.record.progress[1:]]
    schedules = Schedules(LAYERS, plan.question.model.layer_windows)
    sweeps = Sweeps(plan.question, Footprint(plan.question), schedules)
    for token in (10, 30, 58):  # after the prompt, which gives the first
        tier = TierLoad(1, 300 + token - 1)
        hosted, on_device = LaneLoad(host=tier, logits=1), LaneLoad(device=tier, logits=1)
        lane = hosted if case.host_rows else on_device
        elsewhere = option_of(plan).candidate.elsewhere
        expected = sweeps.time(elsewhere, SweepLoad(lane)).period_s
        assert times[token] - times[token - 1] == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize("name", ["gpu-only", "streamed", "ride-along", "rendezvous"])
def test_a_request_that_is_alone_sees_what_it_would_see_without_others(name: str) -> None:
    plan = planned(CASES[name], "300", "25", 8)
    alone = simulate(plan, workload("300", "25", 1))
    seldom = simulate(plan, workload("300", "25", 8, rate=0.01))
    for kind in ("ttft", "tpot", "latency"):
        lone, many = getattr(alone, kind), getattr(seldom, kind)
        assert many.p50_s == pytest.approx(lone.p50_s, rel=0.01)
        assert many.p99_s == pytest.approx(lone.p50_s, rel=0.01)
    assert seldom.busy["accelerator"] < 0.1


def test_more_load_means_more_latency_and_no_more_than_the_capacity() -> None:
    plan = planned(CASES["gpu-only"], requests=80)
    runs = [simulate(plan, workload(requests=80, rate=rate)) for rate in (1.0, 10.0, 100.0)]
    latencies = [run.latency.p50_s for run in runs]
    assert latencies == sorted(latencies)
    assert latencies[2] > 2 * latencies[0]
    at_once = simulate(plan, workload(requests=80))
    assert max(run.tokens_per_s for run in runs) <= at_once.tokens_per_s * 1.02


@pytest.mark.parametrize(
    ("strategy", "refusal"),
    [
        ("Auto", "unknown strategy"),
        ("", "unknown strategy"),
        ("simple", "use --policy simple"),
    ],
)
def test_an_unknown_strategy_is_refused(strategy: str, refusal: str) -> None:
    question = planned(CASES["gpu-only"]).question
    with pytest.raises(ConfigError, match=refusal):
        plan_for(question, strategy)


@pytest.mark.parametrize(
    "strategy",
    ["gpu-only", "ride-along", "rendezvous", "rendezvous-ahead", "symmetric", "asymmetric"],
)
def test_a_strategy_that_is_asked_for_is_what_is_planned(strategy: str) -> None:
    question = replace(planned(CASES["gpu-only"]).question, max_num_batched_tokens=512)
    assert plan_for(question, strategy).plan.strategy == strategy


@pytest.mark.parametrize(
    "case",
    [
        Case("gpu-only", 32, 0),
        Case("gpu-only", 32, 0, streamed=LAYERS),
        Case("ride-along", 0, 32),
        Case("ride-along", 16, 16, device_blocks=16 * 6),
        Case("gpu-only", 32, 0, streamed=LAYERS, on_cpu=2, how="host"),
        Case("gpu-only", 32, 0, on_cpu=2, how="cpu"),
        Case("ride-along", 0, 32, on_cpu=2, how="cpu-mlp"),
        Case("asymmetric", 16, 32, passes=LAYERS),
        Case("symmetric", 0, 32, passes=LAYERS),
        Case("rendezvous-ahead", 16, 32),
    ],
    ids=[
        "resident",
        "streamed",
        "host",
        "both",
        "lent",
        "cpu",
        "MLPs",
        "passes",
        "halves",
        "ahead",
    ],
)
def test_a_steady_state_is_as_fast_as_the_planner_says(case: Case) -> None:
    """Requests of unlike lengths, so that they do not begin and end in waves; within 5%."""
    plan = planned(case, "200-300", "20-300", 300)
    outcome = simulate(plan, workload("200-300", "20-300", 300))
    assert outcome.steady_tokens_per_s == pytest.approx(option_of(plan).tokens_per_s, rel=0.05)
    predicted = dict(option_of(plan).prediction.busy)
    busy = {{"CPU": "host processor"}.get(name, name): each for name, each in outcome.busy.items()}
    assert busy == pytest.approx(predicted, abs=0.05)


def on_cores(case: Case, cores: int) -> Planned:
    """The same plan on more or fewer cores."""
    plan = planned(case, requests=8)
    hardware = plan.question.hardware
    assert hardware.host.cores is not None
    host = with_cores(hardware.host, hardware.host.cores, cores)
    return replace(plan, question=replace(plan.question, hardware=replace(hardware, host=host)))


def test_fewer_cores_slow_what_the_host_attends_and_nothing_else() -> None:
    slow, fast = (simulate(on_cores(CASES["ride-along"], n), workload(requests=8)) for n in (1, 8))
    assert slow.busy["CPU"] > fast.busy["CPU"] > 0
    assert slow.tokens_per_s < 0.9 * fast.tokens_per_s
    slow, fast = (simulate(on_cores(CASES["streamed"], n), workload(requests=8)) for n in (1, 8))
    assert slow == fast


def test_over_the_job_a_plan_is_no_slower_than_the_accelerator_alone() -> None:
    """As executed: rows on the host, or in cohorts, must pay for how a job begins and ends."""
    question = ask("llama-3.1-8b", "rtx4090", prompt="512", generate="512", requests=60,
                   device_bytes=17 << 30, precision=Precision.uniform(DType.BFLOAT16))  # fmt: skip
    requests = workload(prompt="512", generate="512", requests=60)
    plans = [plan_for(question, strategy) for strategy in (None, "gpu-only")]
    best, alone = (simulate(plan, requests).tokens_per_s for plan in plans)
    assert option_of(plans[0]).tokens_per_s >= option_of(plans[1]).tokens_per_s
    assert best >= 0.99 * alone
