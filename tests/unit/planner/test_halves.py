"""All requests on the host, in two halves that take turns at each layer: NEO's second strawman."""

from dataclasses import replace

import pytest
from tests.unit.planner.questions import ask, short

from tandem.models.catalogue import plannable_spec
from tandem.plan.online import OnlinePlan
from tandem.planner.answer import online_plan
from tandem.planner.candidate import Candidate, candidate_of
from tandem.planner.cycle import decode_cycle
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.option import Option
from tandem.planner.policies import POLICIES
from tandem.planner.question import Question
from tandem.planner.relaxation.ceiling import Ceilings
from tandem.planner.search.search import Search

LAYERS = 12
MODEL = short(plannable_spec("llama-3.1-8b"), LAYERS)
QUESTION = ask(MODEL, requests=200)


def with_memory(bytes_per_s: float) -> Question:
    """The same on a host whose cores read so much, whatever is copied meanwhile."""
    host = QUESTION.hardware.host
    host = replace(
        host, memory_bandwidth_bytes_per_s=bytes_per_s, shared_memory_bandwidth_bytes_per_s=1e14
    )
    return replace(QUESTION, hardware=replace(QUESTION.hardware, host=host))


def halves(rows: int) -> Candidate:
    return candidate_of("symmetric", Elsewhere(), 0, rows, LAYERS)


def riding(rows: int) -> Candidate:
    return candidate_of("ride-along", Elsewhere(), 0, rows)


def test_where_the_cpu_is_slow_a_token_takes_its_attention_of_both_halves() -> None:
    found = Search(with_memory(1e9)).predictor.predict(halves(40))
    assert found.decode.cpu_s < found.decode.period_s < 1.05 * found.decode.cpu_s
    assert found.rates.worst_tpot_s == pytest.approx(2 * found.rates.tpot_s)


def test_where_the_cpu_is_fast_a_token_takes_the_stages_of_both_halves() -> None:
    predictor = Search(with_memory(10e12)).predictor
    found = predictor.predict(halves(40)).decode
    assert found.period_s == pytest.approx(found.accelerator_s, rel=0.15)
    one = predictor.predict(candidate_of("gpu-only", Elsewhere(), 20, 0)).decode
    # of two sweeps, in which each half has all stages once, this is the mean
    assert found.accelerator_s == pytest.approx(one.accelerator_s, rel=0.25)


def test_each_hides_what_the_other_waits_for() -> None:
    """Where attention takes as long as the stages of both halves, which read all weights twice: a
    token of one batch takes three halves of the time.
    """
    rows, bytes_per_s = 40, 1e9
    while True:
        predictor = Search(with_memory(bytes_per_s)).predictor
        one = predictor.predict(riding(rows)).decode
        if one.cpu_s <= 2 * one.accelerator_s:
            break
        bytes_per_s *= 1.1
    token_s = 2 * predictor.predict(halves(rows)).decode.period_s
    assert 1.25 < one.period_s / token_s < 1.5


@pytest.mark.parametrize("bytes_per_s", [5e9, 35e9, 1e12])
@pytest.mark.parametrize("rows", [2, 13, 90])
def test_no_prediction_exceeds_its_bound(rows: int, bytes_per_s: float) -> None:
    search = Search(with_memory(bytes_per_s))
    predictor, candidate = search.predictor, halves(rows)
    bound = predictor.bound(candidate)
    assert predictor.rates(candidate).tokens_per_s <= bound.tokens_per_s * (1 + 1e-9)
    assert bound.job_tokens_per_s <= predictor.first_bound(candidate) * (1 + 1e-9)


@pytest.mark.parametrize("bytes_per_s", [5e9, 35e9, 1e12])
def test_no_plan_of_halves_exceeds_the_ceiling(bytes_per_s: float) -> None:
    question = with_memory(bytes_per_s)
    search, policy = Search(question), POLICIES["symmetric"]
    best = search.best(policy)
    assert best is not None
    most = Ceilings(question, search.footprint, policy).ceiling().tokens_per_s
    assert best.tokens_per_s <= most * (1 + 1e-6)
    assert best.tokens_per_s > 0.6 * most  # and it is no mere number


def test_an_engine_is_told_the_halves() -> None:
    search = Search(QUESTION)
    candidate = halves(41)
    plan = online_plan(search, Option(candidate, search.predictor.predict(candidate)))
    assert (plan.strategy, plan.interposition_budget) == ("symmetric", LAYERS)
    assert (plan.max_cohorts, plan.max_cohort_rows, plan.kv_placement) == (2, 21, "host")
    assert OnlinePlan.from_json(plan.to_json()) == plan
    assert candidate.describe(LAYERS).endswith(
        "41 on the host, attended there in two halves that take turns at each layer"
    )


def test_a_cycle_shows_both_halves_of_most_layers() -> None:
    cycle = decode_cycle(QUESTION, halves(40))
    stages = [span for span in cycle.spans if span.op.part.value == "post"]
    assert len(stages) >= 2 * (LAYERS - 1)


def test_policies_with_all_attention_on_the_cpu() -> None:
    """FastDecode takes what is better, halves or one batch; the plan is at least as good."""
    search = Search(ask("llama-3.1-8b", "a10g", "server-genoa", requests=400))
    found = {
        name: search.best(POLICIES[name]) for name in ("symmetric", "simple", "fastdecode", "auto")
    }
    for name in ("symmetric", "simple", "fastdecode"):
        option = found[name]
        assert option is not None
        assert not option.candidate.device_rows
        assert not option.candidate.streamed or name == "simple"
    symmetric, fastdecode, auto = found["symmetric"], found["fastdecode"], found["auto"]
    assert symmetric is not None
    assert fastdecode is not None
    assert auto is not None
    assert symmetric.candidate.halves
    assert fastdecode.tokens_per_s >= symmetric.tokens_per_s * 0.9999
    assert auto.tokens_per_s >= fastdecode.tokens_per_s * 0.9999


def test_embeddings_make_room_where_layers_alone_fit() -> None:
    footprint = Search(QUESTION).footprint
    least = footprint.resident_bytes(Elsewhere()) + footprint.workspace("symmetric", 1)
    tight = replace(QUESTION, device_bytes=least - footprint.embedding_bytes // 2)
    best = Search(tight).best(POLICIES["symmetric"])
    assert best is not None
    assert best.candidate.elsewhere == Elsewhere(embedding=True)
