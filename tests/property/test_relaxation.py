"""What must hold of the linear programme, over hardware, models and workloads."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.property.test_planner import questions
from tests.unit.planner.questions import short

from tandem.models.catalogue import plannable_spec
from tandem.plan.weights import STREAM_SLOTS, Home
from tandem.planner.candidate import Candidate
from tandem.planner.candidates import Candidates
from tandem.planner.footprint import Footprint
from tandem.planner.policies import POLICIES
from tandem.planner.question import Question
from tandem.planner.relaxation.ceiling import Ceilings
from tandem.planner.relaxation.prices import Prices
from tandem.planner.relaxation.rows import Range, Rows
from tandem.planner.relaxation.shares import Shares, least_shares
from tandem.planner.relaxation.way import Way, ways
from tandem.planner.search import Search
from tandem.planner.sensitivity import larger_machines

AUTO = POLICIES["auto"]
HOMES: tuple[Home, ...] = ("resident", "streamed")
EXPERTS = short(plannable_spec("qwen3-30b-a3b"), 8)


@st.composite
def asked(draw: st.DrawFn) -> Question:
    """As for the planner, one in four of them for a mixture of experts."""
    question = draw(questions())
    if draw(st.integers(0, 3)):
        return question
    return replace(question, model=EXPERTS)


def every_way(question: Question) -> list[Way]:
    return list(ways(AUTO, HOMES, alone=question.objective == "latency"))


def rows_of(candidate: Candidate) -> Rows:
    if candidate.strategy == "rendezvous":
        return Rows(
            Range(candidate.device_rows, candidate.device_rows),
            Range(candidate.host_rows, candidate.host_rows),
        )
    return Rows(Range(candidate.rows, candidate.rows))


def way_of(question: Question, candidate: Candidate) -> Way:
    for way in every_way(question):
        alone = candidate.strategy == "rendezvous" and not candidate.device_rows
        if (way.strategy, way.alone) != (candidate.strategy, alone):
            continue
        if way.streams == (candidate.streamed > STREAM_SLOTS):
            return way
    raise AssertionError(candidate)


@settings(max_examples=25)
@given(asked(), st.data())
def test_no_candidate_exceeds_the_bound_of_its_rows_in_closed_form_or_in_virtual_time(
    question: Question, data: st.DataObject
) -> None:
    search = Search(question)
    candidates = list(Candidates(question, search.footprint).of(AUTO))
    assume(candidates)
    prices = Prices(replace(question, tpot_bound_s=None), search.footprint)
    for candidate in data.draw(st.lists(st.sampled_from(candidates), min_size=1, max_size=12)):
        found = least_shares(prices, way_of(question, candidate), rows_of(candidate))
        assert found is not None, candidate
        most = 1 / found.token_s * (1 + 1e-9)
        assert search.predictor.bound(candidate).tokens_per_s <= most, candidate
        assert search.predictor.rates(candidate).tokens_per_s <= most, candidate


@settings(max_examples=25)
@given(asked(), st.sampled_from(sorted(POLICIES)))
def test_no_candidate_of_a_policy_exceeds_its_ceiling(question: Question, name: str) -> None:
    search, policy = Search(question), POLICIES[name]
    ceiling = Ceilings(question, search.footprint, policy).ceiling()
    best = search.best(policy)
    if best is not None:
        assert best.tokens_per_s <= ceiling.tokens_per_s * (1 + 1e-9)
    for candidate in Candidates(question, search.footprint).of(policy):
        rates = search.predictor.bound(candidate)
        if question.tpot_bound_s is None or rates.worst_tpot_s <= question.tpot_bound_s:
            assert rates.tokens_per_s <= ceiling.tokens_per_s * (1 + 1e-9), candidate


@settings(max_examples=15)
@given(asked())
def test_more_of_a_resource_never_lowers_the_ceiling(question: Question) -> None:
    def most(asked: Question) -> float:
        return Ceilings(asked, Footprint(asked), AUTO).ceiling().tokens_per_s

    small = most(question)
    for change, larger in larger_machines(question):
        assert most(larger) >= small * (1 - 1e-9), change


@settings(max_examples=40)
@given(asked(), st.data())
def test_shares_sum_to_one_and_capacities_hold(question: Question, data: st.DataObject) -> None:
    footprint = Footprint(question)
    prices = Prices(question, footprint)
    way = data.draw(st.sampled_from(every_way(question)))
    rows = 1 if question.objective == "latency" else data.draw(st.integers(1, 200))
    cohort = data.draw(st.integers(1, 200)) if way.has_cohort else 0
    through = 0 if way.alone else rows
    found = least_shares(prices, way, Rows(Range(through, through), Range(cohort, cohort)))
    if found is None:
        return
    layers = question.model.num_layers
    assert sum(found.layers.values()) == pytest.approx(layers, rel=1e-9)
    assert all(-1e-9 <= share <= layers * (1 + 1e-9) for share in found.layers.values())
    assert -1e-9 <= found.hosted <= 1 + 1e-9
    device, host = used_bytes(question, footprint, way, found, through, cohort)
    assert device <= question.device_bytes * (1 + 1e-9)
    assert host <= question.host_bytes * (1 + 1e-9)


def used_bytes(
    question: Question, footprint: Footprint, way: Way, found: Shares, through: int, cohort: int
) -> tuple[float, float]:
    row = footprint.blocks_per_row * footprint.block_bytes
    streamed = found.layers.get("streamed", 0.0)
    resident = found.layers["resident"] + (2 if way.streams else 0)
    device = footprint.outside_bytes + resident * footprint.layer_bytes
    device += footprint.workspace(way.strategy, through + cohort)
    device += (1 - found.hosted) * through * row
    return device, streamed * footprint.layer_bytes + (found.hosted * through + cohort) * row


@settings(max_examples=40)
@given(asked(), st.data())
def test_a_range_is_bounded_by_no_less_than_its_members(
    question: Question, data: st.DataObject
) -> None:
    assume(question.objective == "throughput" and question.max_rows > 2)
    prices = Prices(question, Footprint(question))
    way = data.draw(st.sampled_from(every_way(question)))

    def drawn() -> tuple[Range, int]:
        least = data.draw(st.integers(1, question.max_rows))
        most = data.draw(st.integers(least, question.max_rows))
        return Range(least, most), data.draw(st.integers(least, most))

    through, member = (Range(0, 0), 0) if way.alone else drawn()
    cohort, cohort_member = drawn() if way.has_cohort else (Range(0, 0), 0)
    point = Rows(Range(member, member), Range(cohort_member, cohort_member))
    if not question.prompts_keep_up(member, prices.served(way, member, cohort_member)):
        return
    found = least_shares(prices, way, point)
    if found is not None:
        whole = least_shares(prices, way, Rows(through, cohort))
        assert whole is not None
        assert whole.token_s <= found.token_s * (1 + 1e-9)
