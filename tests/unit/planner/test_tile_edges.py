"""Plans where the accelerator multiplies rows in tiles."""

from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.planner.questions import ask, short

from tandem.bench.online.bed import virtual_bed
from tandem.bench.online.cell import Load, make_cell
from tandem.bench.online.plans import plan_policies
from tandem.models.catalogue import plannable_spec
from tandem.planner.candidate import Strategy, candidate_of
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.footprint import Footprint
from tandem.planner.policies import POLICIES
from tandem.planner.prompt_pace import PromptPace
from tandem.planner.question import Question
from tandem.planner.relaxation.ceiling import Ceilings
from tandem.planner.search.candidates import Candidates
from tandem.planner.search.moves import Moves
from tandem.planner.search.search import Search
from tandem.planner.search.tile_edges import at_tile_edges
from tandem.planner.sweep_load import Loads
from tandem.runtime.paced.perturbed_rates import Perturbation

LAYERS = 8
LLAMA = short(plannable_spec("llama-3.1-8b"), LAYERS)


def tiled(question: Question, rows: int | None) -> Question:
    card = replace(question.hardware.accelerator, tile_rows=rows)
    return replace(question, hardware=replace(question.hardware, accelerator=card))


def asked(
    rows: int | None, generate: str = "60", share: float = 1.0, prompt: str = "1"
) -> Question:
    """Many short requests, whose products are bound by arithmetic."""
    question = ask(LLAMA, "a10g", prompt=prompt, generate=generate, requests=2000)
    weights = Footprint(question).layer_bytes * LAYERS
    device_bytes = int(2 * weights + share * 4e9)
    return tiled(replace(question, device_bytes=device_bytes), rows)


def decode_s(question: Question, rows: int) -> float:
    candidate = candidate_of("gpu-only", Elsewhere(), rows, 0)
    return Search(question).predictor.predict(candidate).decode.period_s


def test_rows_of_one_tile_take_as_long_and_the_next_one_s_longer() -> None:
    question = asked(128, generate="2000")
    rows = [decode_s(question, count) for count in (383, 384, 385)]
    assert rows[2] - rows[1] > 20 * (rows[1] - rows[0]) > 0  # attention and activations grow
    # whole tiles take what they take where there are none
    assert rows[1] == pytest.approx(decode_s(asked(None, "2000"), 384), rel=1e-12)


def test_where_requests_end_in_every_sweep_longer_prompts_leave_tiles_unknown() -> None:
    tiled, plain = asked(128, "20", prompt="8"), asked(None, "20", prompt="8")
    for rows in (383, 384, 385):
        assert decode_s(tiled, rows) == decode_s(plain, rows)


def test_where_requests_end_in_every_sweep_their_places_are_empty_once() -> None:
    """Of 20 tokens each: 405 places hold 384 rows in the mean, which are three tiles or four."""

    def longer_s(rows: int, generate: str = "20") -> float:
        tiled, plain = asked(128, generate), asked(None, generate)
        return decode_s(tiled, rows) - decode_s(plain, rows)

    four_s = longer_s(420, generate="2000")
    # 384 places: no sweep has more than three tiles
    assert longer_s(383) < 0.02 * four_s
    assert longer_s(394) < 0.25 * four_s
    assert 0.25 * four_s < longer_s(404) < 0.75 * four_s
    # of 421 places, 22 are empty: four tiles in all sweeps but a few
    assert longer_s(420) == pytest.approx(four_s, rel=0.02)


def test_plans_of_requests_that_end_in_every_sweep_fill_tiles() -> None:
    """On a probed card, 198 requests made 195 rows, which took as long as 256."""
    truth = Perturbation(1, terms=0.3, tile_rows=64, jitter=0.02)
    cell = make_cell("t4-scaled", "llama-2-7b", LAYERS, Load(1, 50), truth)
    question = virtual_bed(cell).question
    (planned,) = plan_policies(question, ("auto",))
    assert planned.plan is not None
    assert planned.plan.max_num_seqs % 64 < 8


def test_prompts_that_fill_a_step_make_its_tiles_known_however_often_requests_end() -> None:
    """21 requests and 235 tokens of prompts are 256, whoever decodes; a cohort of 70 costs as much
    as one of 128 would beside them.
    """

    def sweep_s(rows: int | None, cohort: int, chunk: int) -> float:
        question = tiled(ask(LLAMA, "a10g", prompt="512", generate="64", requests=2000), rows)
        question = replace(question, max_num_batched_tokens=256)
        search = Search(question)
        candidate = candidate_of("rendezvous", Elsewhere(), 21, 2 * cohort, prompts_here=2)
        ((_, load),) = search.predictor.pace.loads(candidate, chunk, 0.0)
        return search._sweeps.time(Elsewhere(), load).accelerator_s

    assert sweep_s(64, 64, 235) == pytest.approx(sweep_s(None, 64, 235), rel=1e-12)
    assert sweep_s(64, 70, 235) - sweep_s(64, 64, 235) > 5 * (
        sweep_s(None, 70, 235) - sweep_s(None, 64, 235)
    )
    assert sweep_s(64, 70, 200) == pytest.approx(sweep_s(None, 70, 200), rel=1e-12)


def test_beside_cohorts_that_fill_a_tile_there_are_as_many_as_fit() -> None:
    question = tiled(ask(LLAMA, "a10g", prompt="512", generate="64", requests=2000), 64)
    question = replace(question, max_num_batched_tokens=256)
    pace = PromptPace(question, Loads(question.lengths))
    candidates = Candidates(question, Footprint(question))
    moves = Moves(candidates, LLAMA, pace, 64)
    here = candidate_of("rendezvous", Elsewhere(), 21, 104, prompts_here=2)
    most = candidates.most_on_device("rendezvous", Elsewhere(), 128, prompts_here=2)
    assert most not in (0, here.device_rows)
    assert here._replace(device_rows=most, host_rows=128) in set(moves.of(here))


def test_a_plan_s_cohorts_fill_tiles_beside_what_the_accelerator_holds() -> None:
    """Of a card that is probed: 83 requests there and two cohorts of 118 were 201 rows at once,
    which took as long as 256.
    """
    truth = Perturbation(1, terms=0.3, tile_rows=64, jitter=0.02)
    cell = make_cell("small", "llama-3.1-8b", LAYERS, Load(1, 1000), truth)
    question = virtual_bed(cell).question
    assert question.tile_rows == 64
    (planned,) = plan_policies(question, ("auto",))
    assert planned.option is not None
    found = planned.option.candidate
    assert found.ahead
    assert -(found.device_rows + found.cohort_rows) % 64 < 8


@pytest.mark.parametrize("policy", ["auto", "gpu-only", "rendezvous", "ride-along"])
def test_no_plan_exceeds_the_ceiling(policy: str) -> None:
    question = asked(64, share=0.1)
    search = Search(question)
    best = search.best(POLICIES[policy])
    assert best is not None
    most = Ceilings(question, search.footprint, POLICIES[policy]).ceiling().tokens_per_s
    assert best.tokens_per_s <= most * (1 + 1e-6)
    plain = asked(None, share=0.1)
    assert most == Ceilings(plain, Footprint(plain), POLICIES[policy]).ceiling().tokens_per_s


@given(
    strategy=st.sampled_from(
        ("gpu-only", "ride-along", "rendezvous", "rendezvous-ahead", "asymmetric")
    ),
    device=st.integers(1, 600),
    hosted=st.integers(1, 256),
    tile=st.sampled_from((16, 64, 128)),
    prompt=st.integers(1, 600),
)
def test_what_is_proposed_ends_where_a_tile_does(
    strategy: Strategy, device: int, hosted: int, tile: int, prompt: int
) -> None:
    hosted = 0 if strategy == "gpu-only" else hosted
    passes = LAYERS if strategy == "asymmetric" else 0
    here = candidate_of(strategy, Elsewhere(), device, hosted, passes)
    ended = device / 49
    for found in at_tile_edges(here, tile, prompt, ended):
        assert found != here
        assert found.device_rows > 0
        assert (found.host_rows > 0) == (hosted > 0)
        every = found.in_every_sweep()
        ends = {every, every + prompt, found.cohort_rows}
        ends |= {end + found.cohort_rows for end in (every, every + prompt)}
        ends |= {every + 1 - empty for empty in range(ceil(ended))}
        assert any(end % tile == 0 for end in ends), found
        assert found._replace(device_rows=device, host_rows=hosted) == here
        assert found.device_rows <= device


def test_all_on_the_host_or_in_halves_nothing_is_proposed() -> None:
    on_host = candidate_of("ride-along", Elsewhere(), 0, 100)
    halves = candidate_of("symmetric", Elsewhere(), 0, 100, LAYERS)
    assert not [*at_tile_edges(on_host, 64, 1), *at_tile_edges(halves, 64, 1)]
