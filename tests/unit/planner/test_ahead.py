"""Cohorts that join every sweep, as the planner predicts them and hands them to an engine."""

import pytest
from tests.unit.planner.test_passes import LAYERS, QUESTION, with_memory, with_passes

from tandem.plan.interposition import token_rhythm
from tandem.plan.online import OnlinePlan
from tandem.planner.answer import online_plan
from tandem.planner.candidate import Candidate, candidate_of
from tandem.planner.cycle import decode_cycle
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.footprint import Footprint
from tandem.planner.option import Option
from tandem.planner.policies import POLICIES
from tandem.planner.prompt_pace import PromptPace
from tandem.planner.relaxation.ceiling import Ceilings
from tandem.planner.search.candidates import Candidates
from tandem.planner.search.moves import Moves
from tandem.planner.search.search import Search
from tandem.planner.sweep_load import Loads

_SLOW, _FAST = 1e9, 10e12  # bytes per second that the host's cores read


def ahead(device: int = 20, hosted: int = 40, streamed: int = 0) -> Candidate:
    return candidate_of("rendezvous-ahead", Elsewhere(streamed), device, hosted)


def test_a_token_takes_as_many_sweeps_as_engines_price_it_by() -> None:
    sweeps = token_rhythm(LAYERS, 0, every=1, in_flight=2).sweeps
    assert ahead().sweeps_per_hosted_token(LAYERS) == sweeps
    assert ahead().served(LAYERS) == 20 + 40 / sweeps
    assert ahead().served(LAYERS) > with_passes(0).served(LAYERS)


def test_where_the_cpu_is_fast_sweeps_take_as_long_as_those_of_cohorts_in_turns() -> None:
    predictor = Search(with_memory(_FAST)).predictor
    found, turns = (predictor.predict(each).decode for each in (ahead(), with_passes(0)))
    alone = predictor.predict(candidate_of("gpu-only", Elsewhere(), 20, 0)).decode
    assert alone.period_s < found.period_s
    assert found.period_s == pytest.approx(turns.period_s, rel=0.02)


def test_where_the_cpu_is_slow_the_sweeps_that_cohorts_join_last_as_long_as_its_attention() -> None:
    predictor = Search(with_memory(_SLOW)).predictor
    found = predictor.predict(ahead()).decode
    alone = predictor.predict(candidate_of("gpu-only", Elsewhere(), 20, 0)).decode
    one_s = predictor.predict(with_passes(0)).decode.cpu_s  # a cohort's, in one layer
    joined = LAYERS / (LAYERS + 2)
    assert found.cpu_s == pytest.approx(joined * 2 * one_s, rel=0.02)
    assert found.period_s == pytest.approx(found.cpu_s + (1 - joined) * alone.period_s, rel=0.02)


@pytest.mark.parametrize("bytes_per_s", [_SLOW, 35e9, _FAST])
@pytest.mark.parametrize(("rows", "streamed"), [((4, 2), 0), ((20, 13), 0), ((9, 90), 5)])
def test_no_prediction_exceeds_its_bound(
    rows: tuple[int, int], streamed: int, bytes_per_s: float
) -> None:
    predictor, candidate = Search(with_memory(bytes_per_s)).predictor, ahead(*rows, streamed)
    bound = predictor.bound(candidate)
    assert predictor.rates(candidate).tokens_per_s <= bound.tokens_per_s * (1 + 1e-9)
    assert bound.job_tokens_per_s <= predictor.first_bound(candidate) * (1 + 1e-9)


@pytest.mark.parametrize("bytes_per_s", [_SLOW, 35e9, _FAST])
def test_no_plan_of_cohorts_exceeds_the_ceiling(bytes_per_s: float) -> None:
    question, policy = with_memory(bytes_per_s), POLICIES["rendezvous"]
    search = Search(question)
    best = search.best(policy)
    assert best is not None
    most = Ceilings(question, search.footprint, policy).ceiling().tokens_per_s
    assert 0.8 * most < best.tokens_per_s <= most * (1 + 1e-6)
    for device, hosted in ((20, 13), (60, 90), (80, 200)):
        assert search.predictor.bound(ahead(device, hosted)).tokens_per_s <= most * (1 + 1e-6)


def test_where_the_cpu_keeps_up_joining_ahead_is_planned_and_an_engine_is_told() -> None:
    search = Search(with_memory(_FAST))
    turns = search.predictor.predict(with_passes(0)).rates.tokens_per_s
    candidate = ahead(20, 41)
    option = Option(candidate, search.predictor.predict(candidate))
    assert option.tokens_per_s > turns
    plan = online_plan(search, option)
    assert (plan.strategy, plan.interposition_budget) == ("rendezvous-ahead", 0)
    assert (plan.max_cohorts, plan.max_cohort_rows, plan.max_device_seqs) == (2, 21, 20)
    assert plan.max_join_wait_s >= option.prediction.rates.tpot_s
    assert OnlinePlan.from_json(plan.to_json()) == plan
    assert candidate.describe(LAYERS).endswith("there in cohorts that join every sweep")


def test_without_rows_on_the_accelerator_there_is_nothing_to_be_ahead_of() -> None:
    assert not ahead(0, 40).ahead
    candidates = Candidates(QUESTION, Footprint(QUESTION))
    tight = ahead(1, 40, LAYERS)
    moves = Moves(candidates, QUESTION.model, PromptPace(QUESTION, Loads(QUESTION.lengths)), 64)
    found = [*candidates.of(POLICIES["rendezvous"]), *moves.of(tight)]
    cohorts = [each for each in found if each.strategy == "rendezvous-ahead"]
    assert cohorts
    assert all(each.device_rows for each in cohorts)


def test_a_cycle_shows_both_cohorts() -> None:
    cycle = decode_cycle(QUESTION, ahead())
    posts = {span.op.lanes for span in cycle.spans if span.op.part.value == "post"}
    assert posts == {(0,), (0, 1), (0, 2)}
