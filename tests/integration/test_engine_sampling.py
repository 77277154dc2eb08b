"""A request's tokens depend on the request alone: not on company, tier, loop or executor."""

from dataclasses import replace

import pytest
from tests.support.engines import TOY_VOCAB, toy_engine
from tests.support.script import Generated, run_all
from tests.support.setups import Setup
from tests.support.toy_maths import NAN_TOKEN
from tests.support.toy_reference import greedy

from tandem.spec.request import EngineRequest, FinishReason
from tandem.spec.sampling import SamplingParams

NUM_LAYERS = 2
EOS = 7
PLAIN = Setup(overlap=False, eos_ids=(EOS,))
_HYBRID = Setup(device_blocks=64, host_blocks=64, kv_placement="split", eos_ids=(EOS,))
SETUPS = {
    "plain": PLAIN,
    "overlapped": replace(PLAIN, overlap=True),
    "three-ahead": replace(PLAIN, overlap=True, launch_ahead_steps=3, executor="exact"),
    "chunked": replace(PLAIN, overlap=True, max_num_batched_tokens=8),
    "small-blocks": replace(PLAIN, overlap=True, block_size=4),
    "threaded": replace(PLAIN, overlap=True, executor="threaded"),
    "preempted": replace(PLAIN, overlap=True, device_blocks=10, executor="exact"),
    "ride-along": replace(_HYBRID, strategy="ride-along", executor="exact", executor_seed=1),
    "cohorts": replace(_HYBRID, strategy="rendezvous", executor="exact", executor_seed=2),
    "cohorts-threaded": replace(_HYBRID, strategy="rendezvous", executor="threaded"),
}
each_setup = pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS.keys())
GREEDY = SamplingParams(max_tokens=20, temperature=0.0, ignore_eos=True)


def prompt(length: int, start: int = 1) -> tuple[int, ...]:
    return tuple((start + 5 * i + i * i) % (TOY_VOCAB - 1) + 1 for i in range(length))


def others() -> list[EngineRequest]:
    """Company of all kinds."""
    kinds = (
        GREEDY,
        replace(GREEDY, temperature=1.0, seed=1),
        replace(GREEDY, repetition_penalty=1.5, max_tokens=12),
        replace(GREEDY, temperature=0.5, logprobs=2, top_k=3),
    )
    return [
        EngineRequest(f"other{i}", prompt(9 + 13 * i, i), params) for i, params in enumerate(kinds)
    ]


def generate(setup: Setup, *requests: EngineRequest) -> dict[str, Generated]:
    with toy_engine(setup, NUM_LAYERS) as engine:
        results = run_all(engine.core, requests)
        engine.check_idle()
    return results


def check_greedy(setup: Setup, request: EngineRequest) -> Generated:
    """Alone in its kind among others, the request gets what plain arithmetic gives."""
    expected, reason = greedy(request, num_layers=NUM_LAYERS, vocab_size=TOY_VOCAB, eos_ids=(EOS,))
    result = generate(setup, *others(), request)[request.request_id]
    assert (result.token_ids, result.finish_reason) == (expected, reason)
    return result


# --- seeds ----------------------------------------------------------------------------------------

SEEDED = EngineRequest(
    "seeded",
    prompt(33),
    SamplingParams(
        max_tokens=24, temperature=1.2, top_p=0.95, min_p=0.02, seed=-5, logprobs=3, ignore_eos=True
    ),
)


@pytest.fixture(scope="module")
def alone() -> Generated:
    return generate(PLAIN, SEEDED)["seeded"]


@each_setup
def test_a_seeded_request_is_the_same_alone_and_in_company(setup: Setup, alone: Generated) -> None:
    for company in ([], others()):
        result = generate(setup, *company, SEEDED)["seeded"]
        assert result.token_ids == alone.token_ids
        assert result.logprobs == alone.logprobs
    assert len(set(alone.token_ids)) > 5


def test_samples_of_one_prompt_differ_by_seed() -> None:
    params = SEEDED.sampling
    samples = [
        replace(SEEDED, request_id=str(s), sampling=replace(params, seed=s)) for s in range(4)
    ]
    results = generate(SETUPS["overlapped"], *samples)
    assert len({tuple(result.token_ids) for result in results.values()}) == 4


@each_setup
def test_without_a_seed_the_engine_s_seed_and_the_order_of_arrival_decide(setup: Setup) -> None:
    params = replace(SEEDED.sampling, seed=None)
    requests = [EngineRequest(name, prompt(20), params) for name in ("first", "second")]
    expected = generate(replace(PLAIN, seed=3), *requests)
    results = generate(replace(setup, seed=3), *requests)
    for name, result in results.items():
        assert result.token_ids == expected[name].token_ids
    assert results["first"].token_ids != results["second"].token_ids
    assert generate(PLAIN, *requests)["first"].token_ids != results["first"].token_ids


# --- what changes the scores ----------------------------------------------------------------------

PENALTIES = (
    {"repetition_penalty": 1.8},
    {"presence_penalty": 1.5},
    {"frequency_penalty": 0.7},
    {"repetition_penalty": 0.8, "presence_penalty": -0.5, "frequency_penalty": -0.3},
)


@each_setup
def test_penalties_see_every_earlier_token(setup: Setup) -> None:
    """Under launch-ahead too, where the token before is not yet on the host."""
    for penalties in PENALTIES:
        params = replace(GREEDY, max_tokens=30, **penalties)
        check_greedy(setup, EngineRequest("penalised", prompt(21), params))


def test_penalties_make_a_difference() -> None:
    plain = generate(PLAIN, EngineRequest("r", prompt(21), GREEDY))["r"].token_ids
    for penalties in PENALTIES:
        params = replace(GREEDY, **penalties)
        assert generate(PLAIN, EngineRequest("r", prompt(21), params))["r"].token_ids != plain


@each_setup
def test_bias_forces_and_forbids(setup: Setup) -> None:
    forced = replace(GREEDY, logit_bias=((13, 100.0),))
    result = check_greedy(setup, EngineRequest("forced", prompt(18), forced))
    assert result.token_ids == [13] * 20
    usual = check_greedy(setup, EngineRequest("usual", prompt(18), GREEDY)).token_ids
    forbidden = replace(GREEDY, logit_bias=tuple((token, -100.0) for token in sorted(set(usual))))
    result = check_greedy(setup, EngineRequest("forbidden", prompt(18), forbidden))
    assert not set(usual) & set(result.token_ids)


# --- ends -----------------------------------------------------------------------------------------


@each_setup
def test_stop_tokens_end_a_request_and_what_was_computed_beyond_is_dropped(setup: Setup) -> None:
    usual = check_greedy(setup, EngineRequest("usual", prompt(18), GREEDY)).token_ids
    for place in (0, 1, 7, 15):
        token = usual[place]
        request = EngineRequest("stops", prompt(18), replace(GREEDY, stop_token_ids=(token, 0)))
        result = check_greedy(setup, request)
        assert result.finish_reason is FinishReason.STOP
        assert result.stop_token_id == token
        assert result.token_ids == usual[: usual.index(token) + 1]


@each_setup
def test_many_stop_tokens_end_a_request_as_few_do(setup: Setup) -> None:
    params = replace(GREEDY, stop_token_ids=tuple(range(20, TOY_VOCAB)))
    result = check_greedy(setup, EngineRequest("stops", prompt(18), params))
    assert result.finish_reason is FinishReason.STOP


@each_setup
def test_the_model_s_end_token_ends_a_request_unless_ignored(setup: Setup) -> None:
    likely = replace(GREEDY, logit_bias=((EOS, 5.0),))
    ignoring = check_greedy(setup, EngineRequest("ignores", prompt(25), likely))
    assert EOS in ignoring.token_ids[:-1]
    assert ignoring.finish_reason is FinishReason.LENGTH
    request = EngineRequest("ends", prompt(25), replace(likely, ignore_eos=False))
    result = check_greedy(setup, request)
    assert (result.finish_reason, result.stop_token_id) == (FinishReason.STOP, EOS)


@each_setup
def test_ends_are_impossible_before_the_least_number_of_tokens(setup: Setup) -> None:
    params = replace(GREEDY, ignore_eos=False, min_tokens=9, logit_bias=((EOS, 60.0),))
    result = check_greedy(setup, EngineRequest("waits", prompt(25), params))
    assert len(result.token_ids) == 10
    assert EOS not in result.token_ids[:-1]


@each_setup
def test_without_a_bound_a_request_ends_at_the_context_s_length(setup: Setup) -> None:
    params = SamplingParams(max_tokens=None, temperature=0.0, ignore_eos=True)
    request = EngineRequest("long", prompt(70), params)
    with toy_engine(replace(setup, max_model_len=100), NUM_LAYERS) as engine:
        result = run_all(engine.core, [request])["long"]
        engine.check_idle()
    assert result.finish_reason is FinishReason.LENGTH
    bounded = replace(request, sampling=replace(params, max_tokens=30))
    assert result.token_ids == check_greedy(PLAIN, bounded).token_ids


# --- failures -------------------------------------------------------------------------------------


@each_setup
def test_a_request_without_usable_scores_fails_alone(setup: Setup) -> None:
    broken = EngineRequest("broken", (*prompt(10), NAN_TOKEN), GREEDY)
    sound = EngineRequest("sound", prompt(31), GREEDY)
    expected, _ = greedy(sound, num_layers=NUM_LAYERS, vocab_size=TOY_VOCAB)
    results = generate(setup, *others(), broken, sound)
    assert results["broken"].finish_reason is FinishReason.ERROR
    assert results["broken"].token_ids == []
    assert "not a number" in (results["broken"].error or "")
    assert results["sound"].token_ids == expected
