"""Candidates that are left out for their number of rows: none of them is of interest."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.unit.planner.questions import ask, short, with_dense, with_disk

from tandem.models.catalogue import plannable_spec
from tandem.planner.candidate import Candidate, candidate_of
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.fluid.schedule import Schedules
from tandem.planner.footprint import Footprint
from tandem.planner.glance import Glances
from tandem.planner.policies import POLICIES
from tandem.planner.prediction import Predictor
from tandem.planner.question import MAX_ROWS, Question
from tandem.planner.search.candidates import Candidates
from tandem.planner.search.lending import Lending
from tandem.planner.search.row_limits import RowLimits
from tandem.planner.search.search import Search
from tandem.planner.sweeps import Sweeps
from tandem.spec.quantized_maps import uniform_formats

AUTO = POLICIES["auto"]
SMALL = short(plannable_spec("llama-3.1-8b"), 8)
MIXTURE = short(plannable_spec("qwen3-30b-a3b"), 8)
WINDOWED = short(plannable_spec("gemma-3-27b"), 6)
QUESTIONS = {
    "some streamed": ask(SMALL, device_bytes=4 * 10**9),
    "most streamed": ask(SMALL, device_bytes=2 * 10**9),
    "all resident": ask(SMALL, device_bytes=8 * 10**9),
    "slow card": ask(SMALL, "t4", device_bytes=3 * 10**9, prompt="100", generate="400"),
    "long prompts": ask(SMALL, device_bytes=4 * 10**9, prompt="3000", generate="20"),
    "small steps": ask(SMALL, device_bytes=4 * 10**9, max_num_batched_tokens=256),
    "one token": ask(SMALL, device_bytes=4 * 10**9, generate="1"),
    "mixture": ask(MIXTURE, device_bytes=5 * 10**9),
    "mixture in part": ask(
        with_dense(MIXTURE, 0, 1),
        "t4",
        device_bytes=8 * 10**9,
        prompt="10-3000",
        generate="5-60",
        max_num_batched_tokens=256,
    ),
    "two kinds of layers": ask(with_dense(MIXTURE, 0, 1), device_bytes=6 * 10**9),
    "windows": ask(WINDOWED, device_bytes=8 * 10**9, prompt="2000"),
    "disk": with_disk(ask(SMALL, device_bytes=2 * 10**9, host_bytes=2 * 10**9), 3e9),
    "alone": ask(SMALL, device_bytes=4 * 10**9, objective="latency"),
}

LONG = ask(MIXTURE, "t4", device_bytes=3 * 10**9, prompt="3000", generate="20")
"""Most sweeps read a step's tokens of a prompt, some no more than was left of one."""


class Enumerated:
    """All candidates of a question, with those that lend layers, and their first bounds."""

    def __init__(self, question: Question) -> None:
        footprint = Footprint(question)
        self.sweeps = Sweeps(question, footprint, Schedules.of_model(question.model))
        self.predictor = Predictor(question, self.sweeps)
        self.candidates = Candidates(question, footprint)
        self._lending = Lending(self.sweeps, self.predictor)

    def with_lent(self, limits: RowLimits | None = None) -> Iterator[Candidate]:
        for plain in self.candidates.of(AUTO, limits):
            yield plain
            yield from self._lending.of(plain)


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
@pytest.mark.parametrize("share", [0.3, 0.9])
def test_whatever_may_be_of_interest_is_within_the_limits(question: Question, share: float):
    found = Enumerated(question)
    every = {each: found.predictor.first_bound(each) for each in found.with_lent()}
    least_per_s = share * max(every.values())
    limits = RowLimits(question, found.sweeps, least_per_s)
    kept = set(found.with_lent(limits))
    assert kept <= every.keys()
    assert {each for each, per_s in every.items() if per_s > least_per_s} <= kept
    if question.objective == "throughput":
        assert len(kept) < len(every)


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_a_glance_promises_no_less_than_the_first_bound_and_often_little_more(question: Question):
    found = Enumerated(question)
    glances = Glances(question, found.sweeps, found.predictor)
    near = []
    for candidate in found.with_lent():
        lends, plain = candidate.elsewhere.lent > 0, candidate
        if lends:
            plain = candidate.with_elsewhere(candidate.elsewhere.lending(0))
        most, first = glances.of(plain, lends=lends)[lends], found.predictor.first_bound(candidate)
        assert most >= first, candidate
        near.append(most < 1.5 * first)
    if question.objective == "throughput":
        assert sum(near) > len(near) / 2


@pytest.mark.parametrize("name", ["some streamed", "slow card", "windows", "mixture"])
def test_a_glance_at_cohorts_counts_the_sweeps_in_which_the_last_of_them_decode(name: str):
    found = Enumerated(QUESTIONS[name])
    glances = Glances(QUESTIONS[name], found.sweeps, found.predictor)
    cohorts = [c for c in found.candidates.of(AUTO) if c.has_cohorts and not c.halves]
    assert any(c.streamed and c.device_rows for c in cohorts)
    assert any(not c.device_rows for c in cohorts)
    near = [glances.of(each)[0] < 1.15 * found.predictor.rough_bound(each) for each in cohorts]
    assert sum(near) > 0.9 * len(near)


@pytest.mark.parametrize("prompts_here", [0, 2, 8])
def test_as_many_rows_as_have_room_are_found_from_a_limit_near_and_far(prompts_here: int):
    question = QUESTIONS["some streamed"]
    candidates, footprint = Candidates(question, Footprint(question)), Footprint(question)
    elsewhere = Elsewhere(8)
    holds = footprint.room("ride-along", elsewhere).holds
    for hosted in (1, 3, 17, 100):
        every = range(1, question.max_rows)
        most = max((n for n in every if holds(n, hosted, prompts_here=prompts_here)), default=0)
        assert most > 10
        for limit in (most - 3, most, most + 1, most + 2, most + 5, most + 300, MAX_ROWS):
            found = candidates.most_on_device(
                "ride-along", elsewhere, hosted, limit, prompts_here=prompts_here
            )
            assert found == min(limit, most)


@pytest.mark.parametrize("question", [*QUESTIONS.values(), LONG], ids=[*QUESTIONS, "long, mixture"])
def test_bounds_come_closer_from_above(question: Question):
    found = Enumerated(question)
    for candidate in list(found.with_lent())[::3]:
        bound = found.predictor.bound(candidate).job_tokens_per_s
        assert found.predictor.first_bound(candidate) >= bound * (1 - 1e-9), candidate
        # numbers of tokens are rounded in between
        assert found.predictor.rough_bound(candidate) >= bound * (1 - 0.01), candidate


def test_sweeps_with_prompts_beside_a_cohort_alone_may_be_shorter_than_its_own():
    """These wait for its attention, which others have beside them."""
    question = ask(SMALL, "a100-40", "desktop-ddr4", prompt="300-900", generate="1", requests=400)
    search = Search(replace(question, max_num_batched_tokens=64))
    candidate, predictor = candidate_of("rendezvous", Elsewhere(), 0, 64), search.predictor
    for each in (candidate, candidate._replace(prompts_here=2)):
        bound = predictor.bound(each).job_tokens_per_s
        assert predictor.first_bound(each) >= bound * (1 - 1e-9)
        glances = Glances(search.question, Enumerated(search.question).sweeps, predictor)
        assert glances.of(each)[0] >= predictor.first_bound(each)


@pytest.mark.parametrize("bits", [4, 8])
def test_bounds_lie_above_where_weights_in_few_bits_are_dequantized(bits: int):
    """From some number of tokens on, so that more of them in one sweep may be cheaper."""
    question = ask(SMALL, "a100-40", prompt="300-900", generate="2", requests=3)
    precision = replace(question.precision, quantized=uniform_formats(SMALL, bits, 64))
    question = replace(question, precision=precision, max_num_batched_tokens=256)
    candidate, predictor = candidate_of("gpu-only", Elsewhere(), 1, 0), Search(question).predictor
    bound = predictor.bound(candidate).job_tokens_per_s
    assert predictor.rough_bound(candidate) >= bound * (1 - 0.01)


@pytest.mark.parametrize("bound", [1.02, 1.5, 4.0])
@pytest.mark.parametrize("name", ["some streamed", "slow card", "long prompts", "mixture"])
def test_whatever_may_be_in_time_is_within_the_limits(name: str, bound: float):
    question = QUESTIONS[name]
    best = Search(question).best(AUTO)
    assert best is not None
    alone = replace(question, objective="latency")
    fastest_s = min(
        Enumerated(alone).predictor.rates(each).tpot_s for each in Candidates(
            alone, Footprint(alone)
        ).of(POLICIES["gpu-only"])
    )  # fmt: skip
    question = replace(question, tpot_bound_s=bound * fastest_s)
    found = Enumerated(question)
    in_time = [each for each in found.with_lent() if not found.predictor.is_surely_late(each)]
    kept = set(found.with_lent(RowLimits(question, found.sweeps, 0.0)))
    assert kept.issuperset(in_time)


def test_streamed_weights_rule_out_few_rows():
    """Each sweep waits for all of them, which the CPU may take over where no prompt is read."""
    question = QUESTIONS["most streamed"]
    found, every = Enumerated(question), Elsewhere(8)
    least = found.sweeps.least(every)
    loads_s = 8 * Footprint(question).layer_bytes / question.hardware.link.h2d_bytes_per_s
    assert least.with_prompts_s == pytest.approx(loads_s, rel=0.01)
    assert least.chain_s < least.whole_s < least.with_prompts_s
    rows = RowLimits(question, found.sweeps, 40.0).of(every, cohorts=False).least
    assert rows > 40.0 * least.whole_s * 127 / 128 > 1


@pytest.mark.parametrize("name", ["some streamed", "slow card", "windows", "mixture"])
def test_attention_takes_no_less_than_is_counted_for_each_row(name: str):
    question = QUESTIONS[name]
    found = Enumerated(question)
    rows_s = 0.0
    for candidate in found.candidates.of(POLICIES["ride-along"]):
        attention_s = found.sweeps.attention_s(found.predictor.loads.of(candidate).main)
        rows_s = found.sweeps.row_s() * candidate.rows
        assert rows_s <= attention_s
    assert rows_s > 0
