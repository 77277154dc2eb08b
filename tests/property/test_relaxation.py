"""What must hold of the linear programme, over hardware, models and workloads."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.property.test_planner import questions
from tests.support.examples import scaled
from tests.unit.planner.questions import alone, short, with_disk

from tandem.models.catalogue import plannable_spec
from tandem.plan.weights import STREAM_SLOTS
from tandem.planner.candidate import Candidate, candidate_of
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.footprint import Footprint
from tandem.planner.policies import POLICIES, Policy
from tandem.planner.question import Question
from tandem.planner.relaxation.ceiling import Ceilings
from tandem.planner.relaxation.homes import LayerHome
from tandem.planner.relaxation.prices import Prices
from tandem.planner.relaxation.rows import Range, Rows
from tandem.planner.relaxation.shares import Shares, least_shares
from tandem.planner.relaxation.way import Way, homes_of, ways
from tandem.planner.search.candidates import Candidates
from tandem.planner.search.lending import Lending
from tandem.planner.search.search import Search
from tandem.planner.sensitivity import larger_machines
from tandem.planner.sweeps import Sweeps

AUTO = POLICIES["auto"]


def every_way(question: Question) -> list[Way]:
    homes = homes_of(AUTO, question, Footprint(question))
    alone = question.objective == "latency"
    layers, here = question.model.num_layers, question.may_read_here
    return list(ways(AUTO, homes, layers, alone=alone, may_read_here=here))


def every_candidate(search: Search, policy: Policy) -> Iterator[Candidate]:
    """Those that lend layers to the CPU as well."""
    question = search.question
    lending = Lending(Sweeps(question, search.footprint, search.schedules), search.predictor)
    for candidate in Candidates(question, search.footprint).of(policy):
        yield candidate
        if "host" in policy.homes:
            yield from lending.of(candidate)


def rows_of(candidate: Candidate) -> Rows:
    if candidate.has_cohorts:
        return Rows(
            Range(candidate.device_rows, candidate.device_rows),
            Range(candidate.host_rows, candidate.host_rows),
        )
    return Rows(Range(candidate.rows, candidate.rows))


def way_of(question: Question, candidate: Candidate) -> Way:
    for way in every_way(question):
        alone = candidate.has_cohorts and not candidate.device_rows
        same = candidate.strategy, alone, candidate.passes, candidate.reads_here
        if (way.strategy, way.alone, way.passes, way.reads_here) != same:
            continue
        streams = candidate.streamed > STREAM_SLOTS
        found = way.streams, way.reads, way.streams_mlps, way.shares_mixtures
        split = candidate.experts > 0
        if found == (streams, candidate.on_disk > 0, candidate.mlps and not split, split):
            return way
    raise AssertionError(candidate)


@settings(max_examples=scaled(25))
@given(questions(), st.data())
def test_no_candidate_exceeds_the_bound_of_its_rows_in_closed_form_or_in_virtual_time(
    question: Question, data: st.DataObject
) -> None:
    search = Search(question)
    candidates = list(every_candidate(search, AUTO))
    assume(candidates)
    prices = Prices(replace(question, tpot_bound_s=None), search.footprint)
    for candidate in data.draw(st.lists(st.sampled_from(candidates), min_size=1, max_size=12)):
        found = least_shares(prices, way_of(question, candidate), rows_of(candidate))
        assert found is not None, candidate
        most = 1 / found.token_s * (1 + 1e-9)
        assert search.predictor.bound(candidate).tokens_per_s <= most, candidate
        assert search.predictor.rates(candidate).tokens_per_s <= most, candidate


@settings(max_examples=scaled(25))
@given(questions(), st.data())
def test_no_candidate_exceeds_in_virtual_time_what_bounds_executions(
    question: Question, data: st.DataObject
) -> None:
    """Loads that are spared, and what the memory moves while the CPU waits, are known there."""
    search = Search(question)
    candidates = list(every_candidate(search, AUTO))
    assume(candidates)
    prices = Prices(replace(question, tpot_bound_s=None), search.footprint, executed=True)
    for candidate in data.draw(st.lists(st.sampled_from(candidates), min_size=1, max_size=12)):
        found = least_shares(prices, way_of(question, candidate), rows_of(candidate))
        assert found is not None, candidate
        predicted = search.predictor.rates(candidate).tokens_per_s
        assert predicted <= 1 / found.token_s * (1 + 1e-9), candidate


@settings(max_examples=scaled(25))
@given(questions(), st.data())
def test_what_just_keeps_a_bound_on_time_per_token_does_not_exceed_its_programme(
    question: Question, data: st.DataObject
) -> None:
    """The bound is what a candidate's own requests see, who may wait for each other's prompts."""
    search = Search(question)
    candidates = list(every_candidate(search, AUTO))
    assume(candidates)
    for candidate in data.draw(st.lists(st.sampled_from(candidates), min_size=1, max_size=8)):
        for rates in (search.predictor.bound(candidate), search.predictor.rates(candidate)):
            bounded = replace(question, tpot_bound_s=rates.worst_tpot_s)
            prices = Prices(bounded, search.footprint)
            found = least_shares(prices, way_of(question, candidate), rows_of(candidate))
            assert found is not None, candidate
            assert rates.tokens_per_s <= 1 / found.token_s * (1 + 1e-6), candidate


@settings(max_examples=scaled(25))
@given(questions(), st.sampled_from(sorted(POLICIES)))
def test_no_candidate_of_a_policy_exceeds_its_ceiling(question: Question, name: str) -> None:
    search, policy = Search(question), POLICIES[name]
    ceiling = Ceilings(question, search.footprint, policy).ceiling()
    best = search.best(policy)
    if best is not None:
        assert best.tokens_per_s <= ceiling.tokens_per_s * (1 + 1e-9)
    for candidate in every_candidate(search, policy):
        rates = search.predictor.bound(candidate)
        if question.tpot_bound_s is None or rates.worst_tpot_s <= question.tpot_bound_s:
            assert rates.tokens_per_s <= ceiling.tokens_per_s * (1 + 1e-9), candidate


@settings(max_examples=scaled(15))
@given(questions(), st.booleans())
def test_more_of_a_resource_never_lowers_the_ceiling(question: Question, executed: bool) -> None:
    def most(asked: Question) -> float:
        ceilings = Ceilings(asked, Footprint(asked), AUTO, executed=executed)
        return ceilings.ceiling().tokens_per_s

    small = most(question)
    for change, larger in larger_machines(question):
        assert most(larger) >= small * (1 - 1e-9), change


@settings(max_examples=scaled(40))
@given(questions(), st.data())
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
    layers = question.movable_layers
    assert sum(found.layers.values()) == pytest.approx(layers, rel=1e-9)
    assert all(-1e-9 <= share <= layers * (1 + 1e-9) for share in found.layers.values())
    assert -1e-9 <= found.hosted <= 1 + 1e-9
    device, host = used_bytes(question, footprint, way, found, through, cohort)
    moved = max(0.0, device - question.device_bytes)  # embeddings make room as far as need be
    assert moved <= footprint.embedding_bytes + question.device_bytes * 1e-9
    assert host + moved <= question.host_bytes + question.device_bytes * 1e-9 + 1


def used_bytes(
    question: Question, footprint: Footprint, way: Way, found: Shares, rows: int, cohort: int
) -> tuple[float, float]:
    def count(*homes: LayerHome) -> float:
        return sum(found.layers.get(home, 0.0) for home in homes)

    row = footprint.row_bytes
    whole = count("streamed", "host", "cpu")
    slots = footprint.disk_slots_bytes if way.reads else 0
    apart = count("cpu-mlp", "host-mlp", "streamed-mlp")
    through = count("experts-streamed", "experts-host")
    shared = through + count("experts-cpu")
    slot_bytes = float(footprint.mlp_bytes if way.streams_mlps else footprint.layer_bytes)
    if way.shares_mixtures:
        slot_bytes = through / question.movable_layers * footprint.experts_bytes
    device = footprint.outside_bytes + (2 * slot_bytes if way.streams else 0)
    device += (count("resident", "experts") + apart + shared) * footprint.layer_bytes
    device -= apart * footprint.mlp_bytes + shared * footprint.experts_bytes
    candidate = candidate_of(way.strategy, Elsewhere(), rows, cohort)
    device += footprint.workspace(
        way.strategy,
        rows + cohort,
        device_rows=rows,
        cohorts=(candidate.num_cohorts, candidate.cohort_rows),
    )
    device += (1 - found.hosted) * rows * row
    host = whole * footprint.layer_bytes + apart * footprint.mlp_bytes + slots
    host += shared * footprint.experts_bytes
    return device, host + (found.hosted * rows + cohort) * row


@settings(max_examples=scaled(40))
@given(questions(), st.data())
def test_a_range_is_bounded_by_no_less_than_its_members(
    question: Question, data: st.DataObject
) -> None:
    assume(question.objective == "throughput" and question.max_rows > 2)
    prices = Prices(question, Footprint(question), executed=data.draw(st.booleans()))
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


@settings(max_examples=scaled(25))
@given(st.sampled_from(["llama-3.1-8b", "qwen3-30b-a3b"]), st.floats(0.1, 1.0), st.data())
def test_no_plan_of_the_host_alone_exceeds_its_ceiling(
    model: str, share: float, data: st.DataObject
) -> None:
    spec = short(plannable_spec(model), 6)
    question = alone(
        spec,
        data.draw(st.sampled_from(["desktop-ddr4", "server-genoa"])),
        host_bytes=int(share * 12e9),
        prompt=data.draw(st.sampled_from(["32", "1500"])),
        requests=data.draw(st.sampled_from([1, 60, 400])),
    )
    question = with_disk(question, data.draw(st.sampled_from([0.5e9, 4e9, 100e9])))
    policy = POLICIES["gpu-only"]
    search = Search(question)
    ceiling = Ceilings(question, search.footprint, policy).ceiling()
    for candidate in Candidates(question, search.footprint).of(policy):
        rates = search.predictor.bound(candidate)
        assert rates.tokens_per_s <= ceiling.tokens_per_s * (1 + 1e-9), candidate
    best = search.best(policy)
    if best is not None:
        assert best.tokens_per_s <= best.prediction.bound_tokens_per_s * (1 + 1e-9)
        assert best.tokens_per_s <= ceiling.tokens_per_s * (1 + 1e-9)
