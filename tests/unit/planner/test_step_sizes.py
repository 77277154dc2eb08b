"""The size of steps as a choice of the planner: what it costs in memory, and what it is worth."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.planner.questions import SMALL, ask, short

from tandem.models.catalogue import plannable_spec
from tandem.planner.answer import answer, compare_policies, online_plan
from tandem.planner.candidate import Candidate, candidate_of
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.footprint import Footprint
from tandem.planner.policies import POLICIES, Policy
from tandem.planner.prompt_pace import PromptPace
from tandem.planner.question import Question
from tandem.planner.relaxation.ceiling import Ceilings
from tandem.planner.search.candidates import Candidates
from tandem.planner.search.moves import Moves
from tandem.planner.search.search import Search
from tandem.planner.search.step_sizes import STEP_SIZES, StepSizes, with_steps_that_fit
from tandem.planner.sweep_load import Loads
from tandem.spec.errors import ConfigError
from tandem.spec.hardware_file import load_hardware
from tandem.spec.units import GIB

AUTO, ALONE = POLICIES["auto"], POLICIES["gpu-only"]
SIZES = (128, 512, 2048, 8192)


def asked(gigabytes: float, **changes: Any) -> Question:
    """Eight layers of an 8B model (5.6 GB); the plan may choose its steps."""
    given: dict[str, Any] = {"prompt": "512", "generate": "64", "requests": 400, **changes}
    return ask(SMALL, device_bytes=int(gigabytes * 1e9), step_sizes=SIZES, **given)


def fixed(question: Question, size: int) -> Question:
    """The same in steps of that size."""
    return replace(question, max_num_batched_tokens=size, step_sizes=())


@pytest.mark.parametrize(
    ("policy", "gigabytes", "changes"),
    [
        (AUTO, 5.5, {}),
        (ALONE, 6.2, {"generate": "500"}),
        (AUTO, 7.0, {"prompt": "3000", "requests": 60}),
        (AUTO, 4.5, {"objective": "latency", "prompt": "3000"}),
        (AUTO, 20.0, {"tpot_bound_s": 0.010}),
        (ALONE, 20.0, {"tpot_bound_s": 0.012}),
        (AUTO, 5.5, {"tpot_bound_s": 0.3}),
    ],
    ids=[
        "some streamed", "alone", "long prompts", "one at a time", "in time", "in time, alone",
        "in time, some streamed",
    ],
)  # fmt: skip
def test_a_plan_that_chooses_is_as_good_as_one_of_any_size(
    policy: Policy, gigabytes: float, changes: dict[str, Any]
) -> None:
    question = asked(gigabytes, **changes)
    best = Search(question).best(policy)
    assert best is not None
    for size in SIZES:
        other = Search(fixed(question, size)).best(policy)
        if other is not None:
            assert best.tokens_per_s >= 0.98 * other.tokens_per_s, size


@pytest.mark.parametrize(
    ("usual", "gigabytes", "changes"),
    [
        (512, 4.5, {"prompt": "1", "generate": "50"}),
        (512, 4.5, {"prompt": "256", "generate": "64"}),
        (2048, 5.0, {"prompt": "1", "generate": "50"}),
    ],
    ids=["streamed", "streamed, with prompts", "fewer on the host"],
)
def test_requests_on_the_host_follow_the_size_of_steps(
    usual: int, gigabytes: float, changes: dict[str, Any]
) -> None:
    # more in larger steps, for which more layers are streamed, bring more than small moves reach;
    # so do fewer in smaller ones, and more on the accelerator
    question = asked(gigabytes, requests=50_000, **changes)
    question = replace(question, max_num_batched_tokens=usual)
    best = Search(question).best(AUTO)
    assert best is not None
    for size in SIZES:
        other = Search(fixed(question, size)).best(AUTO)
        assert other is not None
        assert best.tokens_per_s >= 0.98 * other.tokens_per_s, size


@pytest.mark.parametrize("policy", ["rendezvous", "apex"])
def test_strategies_that_only_smaller_steps_leave_all_layers_for_are_tried(policy: str) -> None:
    """At the usual size MLPs would be streamed, beside which cohorts are worth nothing."""
    question = ask(
        "llama-3.1-8b", "t4", "g4dn.4xlarge", prompt="200", generate="300", requests=10,
        step_sizes=SIZES, device_bytes=int(14.2 * GIB),
    )  # fmt: skip
    usual = Search(fixed(question, 2048)).best(POLICIES[policy])
    small = Search(fixed(question, 128)).best(POLICIES[policy])
    best = Search(question).best(POLICIES[policy])
    assert best is not None
    assert small is not None
    assert usual is None or usual.tokens_per_s < 0.8 * small.tokens_per_s
    assert best.tokens_per_s >= 0.98 * small.tokens_per_s


def test_the_plan_says_the_size_that_was_chosen() -> None:
    question = asked(5.6, generate="256")
    found, usual = answer(question), answer(fixed(question, 2048))
    chosen = found.chosen.candidate
    assert 0 < chosen.step_tokens < 2048  # less workspace, more requests
    assert found.plan.max_num_batched_tokens == chosen.step_tokens
    assert f"steps of at most {chosen.step_tokens} tokens" in chosen.describe(8)
    assert found.chosen.tokens_per_s > 1.01 * usual.chosen.tokens_per_s
    assert found.device.workspace_bytes < usual.device.workspace_bytes
    assert found.device.free_bytes >= 0


def test_the_usual_size_is_kept_where_others_bring_next_to_nothing() -> None:
    found = answer(asked(20.0, requests=20, generate="300"))
    assert found.chosen.candidate.step_tokens == 0
    assert found.plan.max_num_batched_tokens == 2048
    assert "steps of at most" not in found.chosen.candidate.describe(8)


def test_a_size_that_was_given_is_kept() -> None:
    for size in (128, 700, 8192):
        search = Search(fixed(asked(6.2), size))
        best = search.best(AUTO)
        assert best is not None
        assert online_plan(search, best).max_num_batched_tokens == size


def test_no_candidate_of_any_size_exceeds_the_ceiling() -> None:
    question = asked(6.2)
    search = Search(question)
    most = Ceilings(question, search.footprint, ALONE).ceiling().tokens_per_s
    alone = [
        Ceilings(fixed(question, size), Footprint(fixed(question, size)), ALONE).ceiling()
        for size in SIZES
    ]
    assert most == pytest.approx(max(each.tokens_per_s for each in alone))
    for step in question.steps:
        for rows in range(1, 400, 20):
            candidate = Candidate("gpu-only", 0, rows, 0, step_tokens=step)
            if search.footprint.fits(candidate):
                assert search.predictor.bound(candidate).tokens_per_s <= most * (1 + 1e-9)


def test_moves_keep_the_size_and_sizes_about_the_placement() -> None:
    question = asked(6.2)
    footprint = Footprint(question)
    candidates = Candidates(question, footprint)
    start = candidate_of("ride-along", Elsewhere(4), 8, 6, step_tokens=512)
    moves = Moves(candidates, question.model, PromptPace(question, Loads(question.lengths)), 64)
    assert {moved.step_tokens for moved in moves.of(start)} == {512}
    found = list(StepSizes(question, footprint, candidates).of(start))
    assert {moved.step_tokens for moved in found} == {0, 128, 8192}
    for moved in found:
        larger = question.step_of(moved.step_tokens) / 512
        assert 0 < moved.host_rows <= start.host_rows * max(1.0, larger)
        assert footprint.fits(moved)
        streamed = (0, 3, 4) if moved.step_tokens == 128 else (4, 5, 6)
        assert moved.elsewhere in map(Elsewhere, streamed)
    looked_up = candidate_of("gpu-only", Elsewhere(embedding=True), 8, 0)
    smaller = [c for c in StepSizes(question, footprint, candidates).of(looked_up) if c.step_tokens]
    assert {moved.embedding for moved in smaller if moved.step_tokens < 2048} == {True, False}


def test_embeddings_and_smaller_steps_together_make_room_that_neither_makes_alone() -> None:
    question = asked(20.0, prompt="1", generate="70000", requests=40)
    footprint = Footprint(question)
    smaller = footprint.workspace("gpu-only", 4) - footprint.workspace("gpu-only", 4, 128)
    used = footprint.resident_bytes(Elsewhere()) + footprint.workspace("gpu-only", 4)
    wanted = footprint.held.wanted(3, 10**6) * footprint.block_bytes
    lacking = footprint.embedding_bytes + smaller // 2
    assert lacking > max(smaller, footprint.embedding_bytes)
    question = replace(question, device_bytes=used + wanted - lacking)
    best = Search(question).best(ALONE)
    assert best is not None
    found = best.candidate
    assert (found.device_rows, found.elsewhere) == (3, Elsewhere(embedding=True))
    assert 0 < found.step_tokens < 2048


def test_steps_are_never_of_fewer_tokens_than_rows() -> None:
    footprint = Footprint(asked(20.0, prompt="1", generate="300", requests=1000))
    assert not footprint.fits(Candidate("gpu-only", 0, 129, 0, step_tokens=128))
    assert footprint.fits(Candidate("gpu-only", 0, 128, 0, step_tokens=128))


def test_where_the_usual_step_leaves_no_room_a_smaller_one_is_planned() -> None:
    question = asked(3.0, host_bytes=0)
    tight = replace(question, device_bytes=_least_bytes(fixed(question, 512)))
    with pytest.raises(ConfigError, match="does not fit"):
        answer(fixed(tight, 2048))
    found = answer(tight)
    assert found.plan.max_num_batched_tokens <= 512
    hopeless = replace(question, device_bytes=10**9)
    assert with_steps_that_fit(hopeless, AUTO).max_num_batched_tokens == min(SIZES)
    with pytest.raises(ConfigError, match="does not fit"):
        answer(hopeless)


def _least_bytes(question: Question, elsewhere: Elsewhere = Elsewhere()) -> int:  # noqa: B008
    """That one request needs on the accelerator, with all layers there."""
    footprint = Footprint(question)
    workspace = footprint.workspace("gpu-only", 1)
    pages = footprint.longest_blocks * footprint.block_bytes
    return footprint.resident_bytes(elsewhere) + workspace + pages


def test_a_bound_that_only_smaller_steps_keep_is_kept() -> None:
    """Their workspace leaves room for all layers, of which some are streamed otherwise."""
    question = asked(6.0, requests=20, generate="300", tpot_bound_s=0.012)
    least = _least_bytes(fixed(question, 128), Elsewhere(embedding=True))
    question = replace(question, device_bytes=least)
    with pytest.raises(ConfigError, match="nothing keeps 12 ms"):
        answer(fixed(question, 2048))
    found = answer(question).chosen
    assert found.candidate.step_tokens == 128
    assert found.prediction.rates.worst_tpot_s <= 0.012


def test_a_policy_that_fits_in_smaller_steps_only_is_compared_in_these() -> None:
    """All layers have to be resident, which the workspace of usual steps leaves no room for."""
    symmetric = POLICIES["symmetric"]
    question = asked(6.0)
    footprint = Footprint(question)
    least = footprint.resident_bytes(Elsewhere(embedding=True))
    question = replace(question, device_bytes=least + footprint.workspace("symmetric", 20, 512))
    assert next(Candidates(question, Footprint(question)).of(symmetric), None) is None
    compared = {each.policy.name: each for each in compare_policies(Search(question))}
    alone = answer(question, "symmetric").chosen
    found = compared["symmetric"].option
    assert found is not None
    assert found.tokens_per_s >= 0.98 * alone.tokens_per_s


@pytest.mark.parametrize("share", [0.65, 0.75])
def test_rows_on_the_accelerator_give_way_where_smaller_steps_leave_few_prompts_room(
    share: float,
) -> None:
    """There, all of the accelerator's rows and a few on the host make 2% less: those on the host
    cost the accelerator no attention.
    """
    hardware = load_hardware("rtx4090-scaled")
    card = hardware.accelerator
    card = replace(card, memory_bandwidth_bytes_per_s=share * card.memory_bandwidth_bytes_per_s)
    question = ask(
        short(plannable_spec("llama-2-7b"), 8), prompt="512", generate="64", requests=4000,
        hardware=replace(hardware, accelerator=card), device_bytes=6_117_339_956,
        host_bytes=hardware.host.memory_bytes, max_num_batched_tokens=512, step_sizes=(256,),
    )  # fmt: skip
    best, small = Search(question).best(AUTO), Search(fixed(question, 256)).best(AUTO)
    assert best is not None
    assert small is not None
    assert best.tokens_per_s >= 0.999 * small.tokens_per_s
    assert best.candidate.host_rows > 60


def test_sizes_are_powers_of_two_around_the_usual_one() -> None:
    assert 2048 in STEP_SIZES
    assert list(STEP_SIZES) == sorted(STEP_SIZES)


def test_what_is_streamed_in_usual_steps_is_tried_resident_in_smaller_ones() -> None:
    """`ride-along` streams MLPs in steps of the usual size; all have room in smaller ones."""
    # prompts of a block, which nobody reads on the accelerator to have them leave it
    lengths = {"prompt": "64", "generate": "64"}
    given = {**lengths, "device_bytes": int(15e9), "step_sizes": STEP_SIZES}
    question = ask("llama-2-7b", "t4", "server-genoa", **given)
    compared = {each.policy.name: each.option for each in compare_policies(Search(question))}
    best, resident = compared["auto"], compared["ride-along"]
    assert best is not None
    assert resident is not None
    assert not resident.candidate.streamed
    usual = Search(replace(question, step_sizes=())).best(POLICIES["ride-along"])
    assert usual is not None
    assert usual.candidate.streamed
    assert best.tokens_per_s >= 0.98 * resident.tokens_per_s > 0.98 * 1.02 * usual.tokens_per_s
