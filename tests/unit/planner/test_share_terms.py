"""Terms of a plan's passes: the planner's own prices, for any share and any length."""

from dataclasses import replace

import pytest
from tests.unit.planner.questions import ask, short, with_disk

from tandem.cost.block_pass import longest_s, pass_s, pass_terms
from tandem.models.catalogue import plannable_spec
from tandem.plan.offline import OfflinePlan
from tandem.planner.offline.answer import offline_answer, offline_plan
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.policies import OFFLINE_POLICIES
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.offline.share_terms import mean_work, share_terms
from tandem.planner.question import Question

OPT = short(plannable_spec("opt-6.7b"), 6)
LLAMA = short(plannable_spec("llama-3.1-8b"), 6)
PLANNED = BlockCandidate(4, 3, 4, 7, 5)


def question_of(context: str = "500-700", generate: str = "100-200") -> Question:
    return ask(OPT, "t4", "g4dn.4xlarge", prompt=context, generate=generate, requests=64)


@pytest.mark.parametrize("model", [OPT, LLAMA])
@pytest.mark.parametrize("shares", [(12, 0), (0, 12), (6, 6), (11, 1)])
def test_other_shares_are_priced_as_if_planned_for(model: object, shares: tuple[int, int]) -> None:
    question = replace(question_of(), model=model)
    times = OfflineSearch(question).times
    terms = share_terms(times, PLANNED)
    other = replace(PLANNED, streamed_rows=shares[0], cpu_rows=shares[1])
    expected = times.bound.decode_s(other)
    assert longest_s(terms, mean_work(question, other)) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("batches", [1, 4])
@pytest.mark.parametrize("shares", [(12, 0), (0, 12), (6, 6)])
@pytest.mark.parametrize("lent", [1, 3, 4])
@pytest.mark.parametrize("mlps", [True, False])
def test_what_the_cpu_computes_is_among_the_terms(
    mlps: bool, lent: int, shares: tuple[int, int], batches: int
) -> None:
    """Four of six: the other two stay in the slots, and no weights come."""
    question = question_of()
    times = OfflineSearch(question).times
    planned = replace(PLANNED, streamed=6, mlps=mlps, lent=lent, batches=batches)
    terms = share_terms(times, planned)
    assert (terms.weights_s == 0) == (lent == 4)
    assert terms.mlps.seconds(planned.rows * batches, 0) > 0
    assert terms.slack >= 1 - 1e-9
    other = replace(planned, streamed_rows=shares[0], cpu_rows=shares[1])
    expected = times.bound.decode_s(other)
    assert longest_s(terms, mean_work(question, other)) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("batches", [1, 4])
@pytest.mark.parametrize(("rows", "least", "most"), [(8, 0.9, 1.0), (400, 0.5, 0.6)])
def test_mlps_on_the_cpu_take_what_the_sequences_there_are_ask_for(
    rows: int, least: float, most: float, batches: int
) -> None:
    """Of few, their weights are read; of many, half take half of the time. Else the end of a block
    were taken for a machine that is faster than told.
    """
    times = OfflineSearch(question_of()).times
    many = replace(
        PLANNED, streamed=6, mlps=True, lent=3, batches=batches,
        resident_rows=0, streamed_rows=0, cpu_rows=rows,
    )  # fmt: skip
    whole = share_terms(times, many).mlps
    half = whole.seconds(batches * rows / 2, 0)
    planned = share_terms(times, replace(many, cpu_rows=rows // 2)).mlps
    assert half == pytest.approx(planned.seconds(batches * rows / 2, 0), rel=1e-6)
    assert least <= half / whole.seconds(batches * rows, 0) <= most


def test_streamed_layers_need_no_disk() -> None:
    times = OfflineSearch(with_disk(question_of(), None)).times
    terms = share_terms(times, PLANNED)
    assert terms.weights_s == share_terms(OfflineSearch(question_of()).times, PLANNED).weights_s > 0


def test_other_lengths_are_priced_as_if_planned_for() -> None:
    terms = share_terms(OfflineSearch(question_of()).times, PLANNED)
    longer = question_of("1500")
    expected = OfflineSearch(longer).times.bound.decode_s(PLANNED)
    assert longest_s(terms, mean_work(longer, PLANNED)) == pytest.approx(expected, rel=0.03)


def test_the_plan_s_own_pass_takes_as_long_as_in_virtual_time() -> None:
    question = question_of()
    times = OfflineSearch(question).times
    terms = share_terms(times, PLANNED)
    assert terms.slack >= 1
    period_s = times.time(PLANNED).decode.period_s
    assert pass_s(terms, mean_work(question, PLANNED)) == pytest.approx(period_s)


def test_no_more_is_streamed_than_slots_hold() -> None:
    search = OfflineSearch(question_of("30", "30"))  # a slot of 2048 tokens of prompts is wider
    terms = share_terms(search.times, PLANNED)
    blocks = search.footprint.slot_blocks(PLANNED)
    assert terms.most_streamed_rows == PLANNED.host_rows
    assert search.footprint.room.blocks(PLANNED.host_rows) <= blocks
    long = OfflineSearch(question_of("1000"))
    assert share_terms(long.times, PLANNED).most_streamed_rows < PLANNED.host_rows


def test_shares_are_solved_anew_where_all_means_are_allowed() -> None:
    search = OfflineSearch(question_of())
    assert offline_plan(search, PLANNED).terms is None
    plan = offline_plan(search, PLANNED, adapts=True)
    assert plan.terms is not None
    terms = replace(plan.terms, most_pinned_rows=None)
    assert terms == share_terms(search.times, PLANNED)
    assert OfflinePlan.from_json(plan.to_json()) == plan
    assert {name for name, each in OFFLINE_POLICIES.items() if each.adapts} == {"auto"}
    remade = replace(PLANNED, recomputed_tokens=64)
    assert offline_plan(search, remade, adapts=True).terms is None
    answer = offline_answer(question_of())
    fixed = answer.chosen.candidate.recomputed_tokens or not answer.chosen.candidate.host_rows
    assert (answer.plan.terms is None) == bool(fixed)


def test_both_ways_have_room_or_shares_stay() -> None:
    question = question_of()
    search, few = OfflineSearch(question), replace(PLANNED, cpu_rows=0, streamed_rows=12)
    away = search.footprint.prompts_on_host(few)
    needs = search.footprint.device(few, prompts_on_host=away).total
    both = search.footprint.device(few, prompts_on_host=away, adapts=True).total
    assert needs < both
    tight = OfflineSearch(replace(question, device_bytes=both - 1))
    assert tight.footprint.fits(few)
    assert offline_plan(tight, few, adapts=True).terms is None
    assert offline_plan(OfflineSearch(replace(question, device_bytes=both)), few, adapts=True).terms


@pytest.mark.parametrize(
    "candidate",
    [
        BlockCandidate(4, 3, 4, 7, 5),
        BlockCandidate(2, 6, 0, 12, 0, recomputed_tokens=256),
        BlockCandidate(1, 0, 8, 0, 0),
    ],
    ids=["shared", "recomputed", "all on the accelerator"],
)
def test_where_shares_are_fixed_passes_have_terms_all_the_same(candidate: BlockCandidate) -> None:
    """Without them nobody knew that passes took another time than was planned."""
    question = question_of()
    search = OfflineSearch(question)
    plan = offline_plan(search, candidate)
    assert plan.terms is None
    assert plan.fixed_terms is not None
    assert OfflinePlan.from_json(plan.to_json()) == plan
    time = search.times.time(candidate).decode
    assert pass_s(plan.fixed_terms, mean_work(question, candidate)) == pytest.approx(time.period_s)
    # what virtual time adds to the longest is waiting, not work that terms do not have
    assert plan.fixed_terms.slack < 1.2
    said = pass_terms(plan.fixed_terms, mean_work(question, candidate))
    assert said.stages_s + said.attention_s == pytest.approx(time.accelerator_s, rel=0.05)
    assert said.copies_s + said.weights_s == pytest.approx(time.h2d_s, rel=0.1)
