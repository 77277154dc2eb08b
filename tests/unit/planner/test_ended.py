"""How many requests end in a sweep at most: by hand, and against what is predicted."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import scaled
from tests.unit.planner.questions import SMALL, ask

from tandem.planner.candidate import Candidate, candidate_of
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.footprint import Footprint
from tandem.planner.policies import POLICIES
from tandem.planner.prompt_pace import PromptPace
from tandem.planner.question import Question
from tandem.planner.relaxation.ended import Served, decoding_per_sweep, ended_per_sweep
from tandem.planner.relaxation.prices import Prices
from tandem.planner.relaxation.rows import NO_ROWS, Range, Rows
from tandem.planner.relaxation.way import Way
from tandem.planner.search.candidates import Candidates
from tandem.planner.sweep_load import Loads

LAYERS = 8
QUESTION: Question = ask(
    SMALL, prompt="512", generate="64", requests=4000, max_num_batched_tokens=256
)


def only(through: int, cohort: int = 0) -> Rows:
    return Rows(Range(through, through), Range(cohort, cohort) if cohort else NO_ROWS)


def test_a_place_whose_prompt_is_read_decodes_nothing() -> None:
    """26 places: 63 sweeps that decode, and three that read 512 tokens beside 24 that decode."""
    decoding = decoding_per_sweep(QUESTION, only(26))
    assert decoding.least == decoding.most == pytest.approx(26 * 63 / 66)
    places = 27  # one more runs than decode
    ended = ended_per_sweep(QUESTION, only(26), Served(26.0, 26.0, 26.0))
    assert ended.most == pytest.approx(places / 66)


def test_no_more_prompts_are_read_than_sweeps_have_room_for() -> None:
    """A request on the accelerator and 200 in cohorts, in steps that leave 255 tokens."""
    ended = ended_per_sweep(QUESTION, only(1, 200), Served(51.0, 51.0, 51.0))
    assert ended.most == pytest.approx(256 / 512)


@settings(max_examples=scaled(60), deadline=None)
@given(st.integers(1, 120), st.integers(0, 250), st.sampled_from(["rendezvous", "asymmetric"]))
def test_no_candidate_has_more(device: int, hosted: int, strategy: str) -> None:
    assert strategy in ("rendezvous", "asymmetric")
    passes = LAYERS if strategy == "asymmetric" else 0
    candidate = candidate_of(strategy, Elsewhere(), device, hosted, passes)
    if not hosted:
        candidate = candidate_of("gpu-only", Elsewhere(), device, 0)
    served = candidate.served(LAYERS)
    found = ended_per_sweep(QUESTION, only(device, hosted), Served(served, served, served))
    pace = PromptPace(QUESTION, Loads(QUESTION.lengths)).of(candidate)
    assert pace.finished <= found.most * (1 + 1e-9)


@settings(max_examples=scaled(60), deadline=None)
@given(st.data())
def test_a_range_lies_around_its_members(data: st.DataObject) -> None:
    def drawn(least: int) -> tuple[Range, int]:
        ends = sorted(data.draw(st.tuples(st.integers(least, 250), st.integers(least, 250))))
        return Range(*ends), data.draw(st.integers(*ends))

    (through, one), (cohort, other) = drawn(1), drawn(1)
    way = Way("rendezvous", ("resident",))
    prices = Prices(QUESTION, Footprint(QUESTION))
    whole, member = prices.span(way, Rows(through, cohort)), prices.span(way, only(one, other))
    assert whole.least_served <= member.least_served * (1 + 1e-9)
    assert whole.most_served >= member.most_served * (1 - 1e-9)
    assert whole.least_decoding <= member.least_decoding
    assert whole.most_decoding >= member.most_decoding


def test_requests_want_at_least_what_the_programme_counts() -> None:
    question = replace(QUESTION, device_bytes=int(6.5e9), host_bytes=int(8e9))
    footprint = Footprint(question)
    prices = Prices(question, footprint)
    found: list[Candidate] = list(Candidates(question, footprint).of(POLICIES["rendezvous"]))
    assert found
    for candidate in found:
        device, host = footprint.uses(candidate)
        rows = only(candidate.device_rows, candidate.host_rows)
        passing = footprint.held.passing(candidate.prompts_here) * footprint.block_bytes
        assert prices.held_bytes(candidate.device_rows, rows) <= device.kv_bytes - passing
        assert prices.held_bytes(candidate.host_rows, rows) <= host.kv_bytes
