"""Ranges of rows in cohorts: what is found without a programme is what the programme finds."""

from math import inf

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.unit.planner.questions import ask, short

from tandem.models.catalogue import plannable_spec
from tandem.planner.footprint import Footprint
from tandem.planner.policies import POLICIES
from tandem.planner.question import Question
from tandem.planner.relaxation.cohort_times import has_closed_form, least_token_s
from tandem.planner.relaxation.prices import Prices
from tandem.planner.relaxation.rows import NO_ROWS, Range, Rows
from tandem.planner.relaxation.shares import least_shares
from tandem.planner.relaxation.way import Way, homes_of, ways

SMALL = short(plannable_spec("llama-3.1-8b"), 8)
QUESTIONS = {
    "all layers fit": ask(SMALL, device_bytes=7 * 10**9),
    "some do": ask(SMALL, device_bytes=3 * 10**9),
    "prompts are shorter than a block": ask(SMALL, "t4", device_bytes=3 * 10**9, prompt="50"),
    "little host memory": ask(SMALL, device_bytes=3 * 10**9, host_bytes=4 * 10**9),
    "experts": ask(short(plannable_spec("qwen3-30b-a3b"), 8), device_bytes=6 * 10**9),
    "a bound": ask(SMALL, device_bytes=3 * 10**9, tpot_bound_s=0.5),
}


def closed_ways(question: Question, prices: Prices) -> list[Way]:
    """Those whose ranges need no programme."""
    policy = POLICIES["auto"]
    homes = homes_of(policy, question, prices.footprint)
    layers, here = question.model.num_layers, question.may_read_here
    every = ways(policy, homes, layers, alone=False, may_read_here=here)
    return [way for way in every if has_closed_form(prices, way)]


@pytest.fixture(scope="module", params=QUESTIONS, ids=lambda name: name.replace(" ", "-"))
def prices(request: pytest.FixtureRequest) -> Prices:
    """Of one question."""
    question = QUESTIONS[request.param]
    return Prices(question, Footprint(question))


@given(data=st.data())
def test_no_programme_finds_another_time(prices: Prices, data: st.DataObject):
    way = data.draw(st.sampled_from(closed_ways(prices.question, prices)))
    through, cohort = (
        Range(least, least + more)
        for least, more in (
            data.draw(st.tuples(st.integers(1, 200), st.integers(0, 200))) for _ in range(2)
        )
    )
    rows = Rows(NO_ROWS if way.alone else through, cohort, data.draw(st.sampled_from((0, 256))))
    least = 0 if way.alone else through.least
    served = prices.served(way, least, cohort.least)
    assume(prices.question.prompts_keep_up(least, served, rows.step_tokens))
    shares = least_shares(prices, way, rows)
    found_s = least_token_s(prices, way, rows)
    if shares is None:
        assert found_s == inf
    else:
        assert found_s == pytest.approx(shares.token_s, rel=1e-6)


def test_ways_of_cohorts_have_a_closed_form_and_others_none():
    question = QUESTIONS["some do"]
    prices = Prices(question, Footprint(question))
    closed = closed_ways(question, prices)
    assert {way.reads_here for way in closed} == {False, True}
    found = {way.strategy for way in closed}
    assert found == {"rendezvous", "rendezvous-ahead", "symmetric", "asymmetric"}
    windows = ask(short(plannable_spec("gemma-3-12b"), 12))
    assert closed_ways(windows, Prices(windows, Footprint(windows))) == []
