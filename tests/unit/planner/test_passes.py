"""Cohorts with passes of their own, as the planner predicts them and hands them to an engine."""

from dataclasses import replace

import pytest
from tests.unit.planner.questions import ask, short

from tandem.models.catalogue import plannable_spec
from tandem.plan.interposition import token_sweeps
from tandem.plan.online import OnlinePlan
from tandem.planner.answer import online_plan
from tandem.planner.candidate import Candidate, candidate_of
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.option import Option
from tandem.planner.policies import POLICIES
from tandem.planner.question import Question
from tandem.planner.search.search import Search

LAYERS = 12
QUESTION = ask(short(plannable_spec("llama-3.1-8b"), LAYERS), requests=200)
PASSES = (LAYERS, LAYERS // 2, LAYERS // 4)


def with_memory(bytes_per_s: float) -> Question:
    """The same on a host whose cores read so much, whatever is copied meanwhile."""
    host = QUESTION.hardware.host
    host = replace(
        host, memory_bandwidth_bytes_per_s=bytes_per_s, shared_memory_bandwidth_bytes_per_s=1e14
    )
    return replace(QUESTION, hardware=replace(QUESTION.hardware, host=host))


def with_passes(passes: int, device: int = 20, hosted: int = 40) -> Candidate:
    strategy = "asymmetric" if passes else "rendezvous"
    return candidate_of(strategy, Elsewhere(), device, hosted, passes)


@pytest.mark.parametrize("passes", PASSES)
def test_where_the_cpu_is_slow_sweeps_last_as_long_as_its_attention(passes: int) -> None:
    predictor = Search(with_memory(1e9)).predictor
    found = predictor.predict(with_passes(passes)).decode
    assert found.cpu_s < found.period_s < 1.05 * found.cpu_s, "it waits for passes in between"
    one_layer_s = predictor.predict(with_passes(0)).decode.period_s
    sweeps = len(token_sweeps(LAYERS, passes))
    assert found.cpu_s == pytest.approx(one_layer_s * LAYERS / sweeps, rel=1e-3)


@pytest.mark.parametrize("passes", PASSES)
def test_where_the_cpu_is_fast_passes_cost_the_accelerator_time(passes: int) -> None:
    """As much as the stages of their layers, which read all weights again."""
    predictor = Search(with_memory(10e12)).predictor
    found = predictor.predict(with_passes(passes)).decode
    assert found.period_s == pytest.approx(found.accelerator_s, rel=0.15)
    sweeps = token_sweeps(LAYERS, passes)
    apart = sum(visit.layer != visit.at for visits in sweeps for visit in visits)
    alone = predictor.predict(candidate_of("gpu-only", Elsewhere(), 20, 0)).decode
    cohort = predictor.predict(candidate_of("gpu-only", Elsewhere(), 1, 0)).decode
    added = found.accelerator_s - alone.accelerator_s
    assert added == pytest.approx(cohort.accelerator_s * apart / LAYERS / len(sweeps), rel=0.25)


def test_more_passes_bring_a_request_on_the_host_its_token_sooner() -> None:
    predictor = Search(QUESTION).predictor
    without, *times = (predictor.predict(with_passes(n)).rates.worst_tpot_s for n in (0, *PASSES))
    assert max(times) < without / 2


@pytest.mark.parametrize("hosted", [1, 12, 90])
@pytest.mark.parametrize("device", [1, 30])
def test_no_prediction_exceeds_its_bound(device: int, hosted: int) -> None:
    predictor = Search(QUESTION).predictor
    for passes in PASSES:
        candidate = with_passes(passes, device, hosted)
        bound = predictor.bound(candidate)
        assert predictor.rates(candidate).tokens_per_s <= bound.tokens_per_s * (1 + 1e-9)
        assert bound.job_tokens_per_s <= predictor.first_bound(candidate) * (1 + 1e-9)


def test_an_engine_is_told_the_strategy_and_its_passes() -> None:
    search = Search(QUESTION)
    candidate = with_passes(LAYERS)
    plan = online_plan(search, Option(candidate, search.predictor.predict(candidate)))
    assert (plan.strategy, plan.interposition_budget) == ("asymmetric", LAYERS)
    assert (plan.max_cohorts, plan.max_cohort_rows, plan.max_host_seqs) == (2, 20, 40)
    assert plan.max_device_seqs == 20
    assert OnlinePlan.from_json(plan.to_json()) == plan


def test_an_engine_waits_for_a_cohort_as_long_as_was_predicted_with() -> None:
    search = Search(QUESTION)
    waits: list[float] = []
    for passes in (0, LAYERS):
        candidate = with_passes(passes)
        option = Option(candidate, search.predictor.predict(candidate))
        waits.append(online_plan(search, option).max_join_wait_s)
        most = max(map(len, token_sweeps(LAYERS, passes)))
        # divided among the visits, each may last a sweep
        assert waits[-1] / most == pytest.approx(option.prediction.rates.tpot_s)
    alone = candidate_of("gpu-only", Elsewhere(), 20, 0)
    option = Option(alone, search.predictor.predict(alone))
    assert online_plan(search, option).max_join_wait_s == 0.002 < min(waits)


def test_the_papers_policies_keep_to_what_the_papers_have() -> None:
    """Where memory is short and the host is fast, so that they use it."""
    question = ask("llama-3.1-8b", "t4", "server-genoa", prompt="1000", generate="300")
    search = Search(replace(question, device_bytes=int(1.12 * question.device_bytes)))
    beside = replace(  # some requests are on the accelerator
        POLICIES["neo"], name="neo beside others", strategies=("gpu-only", "asymmetric")
    )
    policies = *(POLICIES[name] for name in ("asymmetric", "neo", "apex")), beside
    chosen = {policy.name: search.choice(policy) for policy in policies}
    for name in ("neo", "apex", beside.name):
        option = chosen[name]
        assert option is not None
        assert option.candidate.elsewhere._replace(embedding=False) == Elsewhere()
        assert option.candidate.passes in (0, 32)
    neo, apex, between, two = (
        chosen["neo"],
        chosen["apex"],
        chosen["asymmetric"],
        chosen[beside.name],
    )
    assert neo is not None
    assert apex is not None
    assert between is not None
    assert two is not None
    assert two.candidate.strategy == "asymmetric"
    assert neo.tokens_per_s >= two.tokens_per_s * 0.99
    assert apex.tokens_per_s >= neo.tokens_per_s * 0.99
    assert between.tokens_per_s >= two.tokens_per_s * 0.99
