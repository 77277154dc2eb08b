"""What an answer says of the plan, of what was rejected, and of what cannot be."""

from dataclasses import replace

import pytest
from tests.unit.planner.questions import SMALL, ask, with_disk

from tandem.planner.answer import answer
from tandem.planner.candidate import Candidate
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.policies import POLICIES
from tandem.planner.question import Objective, Question
from tandem.planner.search.families import family, unlike_first
from tandem.planner.search.options import AS_FAST
from tandem.planner.search.search import Search
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.precision import Precision


def test_a_bound_that_nothing_keeps_is_refused_with_the_fastest() -> None:
    with pytest.raises(ConfigError, match=r"nothing keeps 5 ms per token.*bound 3\d\.\dms wo"):
        answer(ask(tpot_bound_s=0.005))


def test_a_model_that_fits_nowhere_is_refused_with_the_sizes() -> None:
    with pytest.raises(ConfigError, match=r"does not fit.*131\.\d GiB.*which may give 32\.0 GiB"):
        answer(with_disk(ask("llama-3.1-70b"), None))


def test_the_answer_ranks_what_it_rejects_and_prices_more_of_everything() -> None:
    found = answer(ask("opt-30b", "a4000"), compare=True)
    rates = [option.tokens_per_s for option in found.alternatives]
    assert len(rates) == 3
    assert rates == sorted(rates, reverse=True)
    assert rates[0] * AS_FAST <= found.chosen.tokens_per_s  # what predictions do not tell
    changes = {entry.change: entry.option.tokens_per_s for entry in found.sensitivities}
    assert list(changes) == ["+1 GB GPU memory", "+10 GB/s link", "+8 cores"]
    assert min(changes.values()) >= found.chosen.tokens_per_s
    assert min(entry.gain for entry in found.sensitivities) >= 0
    assert changes["+8 cores"] > 1.01 * found.chosen.tokens_per_s
    by_policy = {result.policy.name: result.option for result in found.policies}
    assert list(by_policy) == [name for name in POLICIES if name != "n-cpu-moe"]  # no experts
    assert by_policy["auto"] == found.chosen
    zero = by_policy["zero-inference"]
    assert zero is not None
    assert (zero.candidate.streamed, zero.candidate.host_rows) == (48, 0)
    simple = by_policy["simple"]
    assert simple is not None
    assert simple.candidate.device_rows == 0
    assert found.spare_bytes < 0
    assert found.plan.max_num_seqs == found.chosen.candidate.rows


@pytest.mark.parametrize("accelerator", ["t4", "a100-80", "h200"])
def test_of_plans_as_fast_the_simpler_one_with_the_shorter_job_is_chosen(accelerator: str) -> None:
    found = answer(
        ask(
            "llama-3.1-8b", accelerator, requests=1000, precision=Precision.uniform(DType.BFLOAT16)
        ),
        compare=True,
    )
    best = {r.policy.name: r.option for r in found.policies if r.option}
    assert found.chosen.candidate.strategy != "rendezvous"
    assert found.chosen == best["auto"]
    assert all(
        option.tokens_per_s <= found.chosen.tokens_per_s * 1.0102 for option in best.values()
    )
    assert found.job_s < 1.5 * 1000 * 128 / found.chosen.tokens_per_s


def test_a_policy_of_experts_is_compared_where_there_are_some() -> None:
    found = answer(ask("qwen3-30b-a3b", "rtx4090", requests=20), compare=True)
    assert [result.policy.name for result in found.policies] == list(POLICIES)


def test_what_limits_is_read_from_sweeps_with_prompts_as_well() -> None:
    precision = Precision.uniform(DType.BFLOAT16)  # slow on a T4, where prompts set the pace
    # so many that how rows fill up and run out does not count
    found = answer(ask("llama-3.1-8b", "t4", requests=50_000, precision=precision), "ride-along")
    gains = {entry.change: entry.gain for entry in found.sensitivities}
    assert gains["+10 GB/s link"] < 0.05  # of the sweeps in which no prompt begins
    prediction = found.chosen.prediction
    assert prediction.rates.prefill_share > 0.7
    assert prediction.bottleneck[0] == "accelerator"
    assert prediction.bottleneck[1] > 0.9
    decode = prediction.decode
    assert decode.h2d_s > decode.accelerator_s  # a sweep that only decodes says otherwise


@pytest.mark.parametrize("policy", ["auto", "gpu-only"])
def test_what_fits_to_the_byte_fits(policy: str) -> None:
    question = ask(requests=1, host_bytes=0)
    footprint = Search(question).footprint
    request = footprint.longest_blocks * footprint.block_bytes
    spare = footprint.device_kv_bytes("gpu-only", Elsewhere(), 1) - request
    exact = replace(question, device_bytes=question.device_bytes - spare)
    found = answer(exact, policy)
    assert (found.spare_bytes, found.chosen.candidate) == (0, Candidate("gpu-only", 0, 1, 0))
    with pytest.raises(ConfigError, match="does not fit"):
        answer(replace(exact, device_bytes=exact.device_bytes - 1), policy)


def test_all_weights_can_be_streamed_where_they_would_fit() -> None:
    found = answer(ask(requests=20), "zero-inference")
    assert found.spare_bytes > 0
    assert found.chosen.candidate.streamed == 32


@pytest.mark.parametrize(
    "question",
    [
        ask(accelerator="rtx4090", device_bytes=17 << 30),
        ask(prompt="4000", generate="500", requests=50),
        ask(SMALL, device_bytes=4_500_000_000, prompt="1500"),
    ],
    ids=["17GiB", "long", "small"],
)
def test_what_was_rejected_is_no_twin_of_anything_else(question: Question) -> None:
    found = answer(question)
    shown = [found.chosen, *found.alternatives]
    for index, option in enumerate(shown):
        for other in shown[:index]:
            same = option.candidate._replace(streamed=0) == other.candidate._replace(streamed=0)
            assert not same or abs(option.tokens_per_s / other.tokens_per_s - 1) >= 0.01


@pytest.mark.parametrize("objective", ["throughput", "latency"])
@pytest.mark.parametrize("model", ["opt-13b", "opt-30b"])
def test_what_was_rejected_is_of_other_families(model: str, objective: Objective) -> None:
    question = ask(model, host="g5.4xlarge", objective=objective, step_sizes=(256, 1024, 2048))
    found = answer(question)
    shown = [found.chosen, *found.alternatives]
    assert len({family(option.candidate) for option in shown}) == len(shown) == 4
    rates = [option.tokens_per_s for option in found.alternatives]
    assert rates == sorted(rates, reverse=True)


def test_of_a_family_more_are_shown_where_there_are_no_others() -> None:
    first, *_ = answer(ask(SMALL)).alternatives
    own = first.candidate
    other = replace(first, candidate=own._replace(on_disk=1))
    twins = [replace(first, candidate=own._replace(device_rows=rows)) for rows in (7, 8)]
    assert unlike_first(own, [*twins, other]) == [other, *twins]
    assert unlike_first(other.candidate, [*twins, other]) == [twins[0], twins[1], other]


@pytest.mark.parametrize("objective", ["throughput", "latency"])
def test_a_request_of_one_token_takes_until_that_and_no_longer(objective: Objective) -> None:
    found = answer(ask(SMALL, generate="1", objective=objective))
    assert found.request_s == found.chosen.prediction.rates.ttft_s
    if objective == "latency":
        assert found.chosen.tokens_per_s == pytest.approx(1 / found.request_s)
        assert found.ceiling is not None
        assert found.chosen.tokens_per_s <= found.ceiling.tokens_per_s * (1 + 1e-6)


def test_a_job_of_one_token_takes_no_longer_than_its_request() -> None:
    """A request's own time is beside others, one of which decodes."""
    found = answer(ask(SMALL, prompt="1", generate="1", requests=1))
    assert found.job_s <= found.request_s
    assert found.job_s == pytest.approx(found.request_s, rel=0.002)


def test_a_bound_that_leaves_no_time_for_prompts_is_refused_with_a_way_out() -> None:
    question = ask(SMALL, device_bytes=6 * 10**9, prompt="2000", generate="20")
    alone = answer(replace(question, objective="latency")).chosen.prediction.rates.tpot_s
    bounded = replace(question, tpot_bound_s=1.01 * alone)
    with pytest.raises(ConfigError, match=r"would do, or \S+ with --objective latency"):
        answer(bounded)
    assert answer(replace(bounded, objective="latency")).chosen.candidate.rows == 1
    with pytest.raises(ConfigError, match=r"nothing keeps .*; --tpot-bound \S+ would do"):
        answer(replace(question, tpot_bound_s=0.5 * alone))


def test_embeddings_stay_where_there_is_room_for_them() -> None:
    precision = Precision.uniform(DType.BFLOAT16)
    found = answer(ask("llama-3.1-8b", "h200", tpot_bound_s=0.015, precision=precision))
    assert found.chosen.candidate.elsewhere == Elsewhere()
