"""What whole tiles allow: no mixture of sweeps exceeds it, and no plan."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support.examples import scaled
from tests.unit.planner.questions import SMALL, ask

from tandem.planner.candidate import COHORTS, Strategy, candidate_of
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.footprint import Footprint
from tandem.planner.held_blocks import may_run_more
from tandem.planner.policies import POLICIES
from tandem.planner.question import Question
from tandem.planner.relaxation.ceiling import Ceilings
from tandem.planner.relaxation.mixtures import StageTimes, most_decoded_per_s
from tandem.planner.relaxation.rows import Range, Rows
from tandem.planner.relaxation.way import Way
from tandem.planner.relaxation.whole_tiles import (
    WholeTiles,
    knows_tiles,
    tiled_ceiling,
)
from tandem.planner.search.search import Search

LAYERS, MAIN, COHORT = 4, 24, 20


def tiled(question: Question) -> Question:
    card = replace(question.hardware.accelerator, tile_rows=64)
    return replace(question, hardware=replace(question.hardware, accelerator=card))


QUESTION: Question = tiled(ask(SMALL, prompt="1", generate="1000", requests=4000))
BRIEF: Question = tiled(ask(SMALL, prompt="1", generate="50", requests=4000))
PROMPTS: Question = replace(
    tiled(ask(SMALL, prompt="512", generate="64", requests=4000)), max_num_batched_tokens=128
)


@st.composite
def times(draw: st.DrawFn) -> StageTimes:
    """Stairs of any tiles over a line, and attention that grows with rows."""
    tile, fixed, each, row = (draw(st.sampled_from(s)) for s in ((1, 4, 7, 16), (0.0, 3.0, 30.0),
                                                               (0.3, 1.0), (0.0, 0.5)))  # fmt: skip
    rows = np.arange(MAIN + COHORTS * COHORT + 1)
    layer_s = np.where(rows > 0, np.maximum(fixed, each * tile * -(-rows // tile)), 0.0)
    main = rows[: MAIN + 1]
    sweep_s = np.where(main > 0, LAYERS * layer_s[: MAIN + 1] + 1.0, np.inf)
    return StageTimes(LAYERS, layer_s, sweep_s, row * main)


sweeps = st.lists(
    st.tuples(
        st.integers(1, MAIN),
        st.lists(st.integers(1, COHORT), max_size=COHORTS),  # rows of cohorts that join
        st.booleans(),  # whether they stand at the same layer
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=scaled(300), deadline=None)
@given(times(), sweeps)
def test_no_mixture_of_sweeps_decodes_more(
    times: StageTimes, mixture: list[tuple[int, list[int], bool]]
) -> None:
    tokens = seconds = 0.0
    for main, cohorts, meet in mixture:
        tokens += main + sum(cohorts) / LAYERS
        seconds += times.sweep_s[main] + times.decode_s[main]
        joining = [sum(cohorts)] if meet else cohorts
        seconds += sum(times.layer_s[main + rows] - times.layer_s[main] for rows in joining)
    shared = sum(len(cohorts) for _, cohorts, _ in mixture) / len(mixture)
    assert tokens / seconds <= most_decoded_per_s(times, COHORT, shared) * (1 + 1e-9)


@settings(max_examples=scaled(60), deadline=None)
@given(times(), sweeps, st.data())
def test_no_mixture_of_sweeps_that_read_prompts_decodes_more(
    times: StageTimes, mixture: list[tuple[int, list[int], bool]], data: st.DataObject
) -> None:
    """Of each sweep's rows, any may be of prompts."""
    decoded = prompts = seconds = 0.0
    for main, cohorts, meet in mixture:
        decoding = data.draw(st.integers(0, main))
        decoded += decoding + sum(cohorts) / LAYERS
        prompts += main - decoding
        seconds += times.sweep_s[main] + times.decode_s[decoding]
        joining = [sum(cohorts)] if meet else cohorts
        seconds += sum(times.layer_s[main + rows] - times.layer_s[main] for rows in joining)
    assume(decoded > 0)
    shared = sum(len(cohorts) for _, cohorts, _ in mixture) / len(mixture)
    most = most_decoded_per_s(times, COHORT, shared, prompts / decoded)
    assert decoded / seconds <= most * (1 + 1e-9)


@settings(max_examples=scaled(12), deadline=None)
@given(times(), st.sampled_from((0.5, 2.0, 8.0)))
def test_without_stages_to_share_the_best_mixture_of_two_sweeps_is_promised(
    times: StageTimes, prompt_tokens: float
) -> None:
    """By brute force over all pairs of sweeps that read as many tokens for each they decode."""
    rows, decoding = np.meshgrid(np.arange(1, MAIN + 1), np.arange(MAIN + 1), indexing="ij")
    are = rows >= decoding
    rows, decoding = rows[are], decoding[are]
    taken_s = times.sweep_s[rows] + times.decode_s[decoding]
    over = rows - decoding - prompt_tokens * decoding  # tokens read beyond those for who decodes
    some, other = over[:, None], over[None, :]
    share = np.where(some == other, 1.0, other / np.where(some == other, 1, other - some))
    share = np.clip(share, 0.0, 1.0)
    able = np.abs(share * some + (1 - share) * other) < 1e-9
    tokens = share * decoding[:, None] + (1 - share) * decoding[None, :]
    seconds = share * taken_s[:, None] + (1 - share) * taken_s[None, :]
    best = float(np.where(able, tokens / seconds, 0.0).max())
    assert best * (1 - 1e-9) <= most_decoded_per_s(times, 1, 0.0, prompt_tokens) <= best * 1.02


@settings(max_examples=scaled(60), deadline=None)
@given(times())
def test_without_stages_to_share_the_best_sweep_alone_is_promised(times: StageTimes) -> None:
    own = np.arange(MAIN + 1) / (times.sweep_s + times.decode_s)
    assert most_decoded_per_s(times, COHORT, 0.0) == pytest.approx(own.max(), rel=0.02)


@settings(max_examples=scaled(60), deadline=None)
@given(times())
def test_where_both_may_join_each_sweep_the_best_of_these_is_promised(times: StageTimes) -> None:
    """By brute force: one of the two is left out where it does not pay, or both stand at one
    layer.
    """
    main, cohort = np.arange(1, MAIN + 1)[:, None], np.arange(COHORT + 1)[None, :]
    longer_s = times.layer_s[main + cohort] - times.layer_s[main]
    best = 0.0
    for first in range(COHORT + 1):
        tokens = main + (cohort + first) / LAYERS
        taken_s = times.sweep_s[main] + times.decode_s[main]
        taken_s = taken_s + longer_s + longer_s[:, first : first + 1]
        best = max(best, float((tokens / taken_s).max()))
    both = np.arange(COHORTS * COHORT + 1)[None, :]
    both_s = times.layer_s[main + both] - times.layer_s[main]
    own_s = times.sweep_s[main] + times.decode_s[main]
    best = max(best, float(((main + both / LAYERS) / (own_s + both_s)).max()))
    found = most_decoded_per_s(times, COHORT, 2.0)
    assert best * (1 - 1e-9) <= found <= best * 1.001


def test_cohorts_that_stand_at_one_layer_may_fill_a_tile_together() -> None:
    """Of 64 rows: two halves in one layer of eight take one tile more, each by itself one each."""
    layers, main = 8, np.arange(65)
    layer_s = np.ceil(np.arange(64 + COHORTS * 32 + 1) / 64)
    sweep_s = np.where(main > 0, layers * layer_s[main] + 0.5, np.inf)
    times = StageTimes(layers, layer_s, sweep_s, np.zeros(65))
    found = most_decoded_per_s(times, 32, 2.0)
    assert found == pytest.approx((64 + 64 / layers) / (layers + 1 + 0.5))


@settings(max_examples=scaled(20), deadline=None)
@given(
    st.integers(1, 120), st.integers(2, 256), st.sampled_from(["rendezvous", "rendezvous-ahead"])
)
def test_no_plan_is_predicted_to_make_more(device: int, hosted: int, strategy: Strategy) -> None:
    search = Search(QUESTION)
    candidate = candidate_of(strategy, Elsewhere(), device, hosted)
    predicted = search.predictor.rates(candidate).tokens_per_s
    rows = Rows(Range(device, device), Range(hosted, hosted))
    tiles = WholeTiles(QUESTION, search.footprint)
    assert predicted <= tiles.tokens_per_s(Way(strategy, ("resident",)), rows) * (1 + 1e-6)


def test_requests_that_decode_half_a_token_are_more_than_those_that_decode_one() -> None:
    rows, way = Rows(Range(60, 60), Range(256, 256)), Way("rendezvous", ("resident",))

    def requests_per_s(generated: str) -> float:
        question = tiled(ask(SMALL, prompt="4", generate=generated, requests=4000))
        question = replace(question, max_num_batched_tokens=128)
        tokens_per_s = WholeTiles(question, Footprint(question)).tokens_per_s(way, rows)
        return tokens_per_s / question.lengths.generated_tokens

    assert requests_per_s("1-2") > 1.01 * requests_per_s("2")
    assert requests_per_s("1") == float("inf")


def test_stages_that_both_share_end_with_a_tile() -> None:
    """84 rows and 128 of a cohort are computed as 256, by lines as 212."""
    tiles, rows = WholeTiles(QUESTION, Footprint(QUESTION)), Rows(Range(84, 84), Range(256, 256))
    lines = QUESTION.without_tiles()
    by_lines = WholeTiles(lines, Footprint(lines))
    way = Way("rendezvous-ahead", ("resident",))
    assert tiles.tokens_per_s(way, rows) < 0.99 * by_lines.tokens_per_s(way, rows)
    assert tiles.tokens_per_s(way, rows) >= tiles.tokens_per_s(
        way, Rows(Range(84, 84), Range(216, 216))
    )


def test_what_is_known_of_more_rows_will_do() -> None:
    tiles = WholeTiles(QUESTION, Footprint(QUESTION))
    way, many = Way("rendezvous", ("resident",)), Rows(Range(80, 90), Range(150, 200))
    few = Rows(Range(40, 50), Range(50, 60))
    most = tiles.tokens_per_s(way, many)
    assert tiles.tokens_per_s(way, few, most) == most
    assert tiles.tokens_per_s(way, few) < most


@pytest.mark.parametrize(
    "way",
    [
        Way("gpu-only", ("resident",)),
        Way("rendezvous", ("resident",), alone=True),
        Way("asymmetric", ("resident",), passes=2),
        Way("rendezvous", ("resident", "host")),
    ],
)
def test_nothing_is_known_of_other_sweeps(way: Way) -> None:
    tiles = WholeTiles(QUESTION, Footprint(QUESTION))
    assert tiles.tokens_per_s(way, Rows(Range(8, 8), Range(8, 8))) == float("inf")


def programme_of(question: Question) -> float:
    """What the programme alone says of executions."""
    ceilings = Ceilings(question, Footprint(question), POLICIES["auto"], executed=True)
    return ceilings.ceiling().tokens_per_s


@pytest.mark.parametrize(
    ("question", "known"),
    [(ask(SMALL, prompt="1", generate="1000", requests=4000), False), (QUESTION, True)],
    ids=["no tiles", "rows vary"],
)
def test_the_ceiling_is_the_programme_s_where_tiles_are_not_known_or_rows_vary(
    question: Question, known: bool
) -> None:
    """Sweeps of 64 rows and of 128 fill their tiles, and have 94 in the mean."""
    assert knows_tiles(question) == known
    footprint = Footprint(question)
    assert may_run_more(question, footprint.held)
    ceiling = tiled_ceiling(question, footprint, POLICIES["auto"])
    assert ceiling == pytest.approx(programme_of(question), rel=1e-12)


@settings(max_examples=scaled(6), deadline=None)
@given(st.integers(1, 40), st.integers(2, 96), st.sampled_from(["rendezvous", "rendezvous-ahead"]))
def test_no_plan_with_prompts_is_predicted_to_make_more(
    device: int, hosted: int, strategy: Strategy
) -> None:
    search = Search(PROMPTS)
    candidate = candidate_of(strategy, Elsewhere(), device, hosted)
    predicted = search.predictor.rates(candidate).tokens_per_s
    rows = Rows(Range(device, device), Range(hosted, hosted))
    tiles = WholeTiles(PROMPTS, search.footprint)
    assert predicted <= tiles.tokens_per_s(Way(strategy, ("resident",)), rows) * (1 + 1e-6)


def test_prompts_attended_on_the_accelerator_lower_the_ceiling() -> None:
    tiles, rows = WholeTiles(PROMPTS, Footprint(PROMPTS)), Rows(Range(20, 20), Range(80, 80))
    there, here = (Way("rendezvous", ("resident",), reads_here=here) for here in (False, True))
    assert tiles.tokens_per_s(there, rows) > tiles.tokens_per_s(here, rows) > 0


@pytest.mark.parametrize("question", [BRIEF, PROMPTS], ids=["50 out", "512 in"])
def test_the_ceiling_is_no_more_than_the_programme_s(question: Question) -> None:
    footprint = Footprint(question)
    assert knows_tiles(question)
    assert not may_run_more(question, footprint.held)
    ceiling = tiled_ceiling(question, footprint, POLICIES["auto"])
    assert 0 < ceiling <= programme_of(question)
