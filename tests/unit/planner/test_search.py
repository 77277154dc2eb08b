from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from tests.unit.planner.questions import ask, short, with_disk

from tandem.models.catalogue import plannable_spec
from tandem.plan.online import OnlinePlan
from tandem.plan.sweep_layers import SweepChoice
from tandem.planner.answer import Answer, answer, online_plan
from tandem.planner.candidate import Candidate, candidate_of
from tandem.planner.candidates import row_grid
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.policies import NOT_BUILT, POLICIES, find_policy
from tandem.planner.question import Question
from tandem.planner.search import Option, Search
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.parameters import layer_matrix_parameters
from tandem.spec.precision import Precision
from tandem.spec.quantized_maps import uniform_formats

AUTO = POLICIES["auto"]
SMALL = short(plannable_spec("llama-3.1-8b"), 8)


def tight(gigabytes: float, **changes: Any) -> Search:
    """Eight layers of an 8B model (5.6 GB) on an A10G that has less memory."""
    return Search(ask(SMALL, device_bytes=int(gigabytes * 1e9), prompt="1500", **changes))


@pytest.mark.parametrize("gigabytes", [4.5, 5.5, 7.0, 20.0])
def test_nothing_on_a_grid_is_better_than_what_the_search_finds(gigabytes: float) -> None:
    search = tight(gigabytes, requests=40)
    best = search.best(AUTO)
    assert best is not None
    for strategy in AUTO.strategies:
        for streamed in range(0, 9, 2):
            for hosted in (0,) if strategy == "gpu-only" else (1, 3, 6, 10, 15, 22, 30, 39):
                for device in (0, 1, 5, 10, 20, 40):
                    candidate = Candidate(strategy, streamed, device, hosted)
                    if not 0 < candidate.rows <= 40 or not search.footprint.fits(candidate):
                        continue
                    if strategy == "rendezvous" and not device:
                        continue  # the sweep would be empty
                    found = search.predictor.predict(candidate).rates.job_tokens_per_s
                    assert found <= best.tokens_per_s * 1.01, candidate


@pytest.mark.parametrize(
    ("model", "gigabytes", "changes"),
    [
        ("llama", 4.5, {"requests": 1}),
        ("llama", 4.5, {"objective": "latency"}),
        ("llama", 3.4, {"requests": 12}),
        ("llama", 5.5, {"requests": 6, "generate": "600"}),
        ("experts", 3.0, {"requests": 1}),
        ("experts", 3.0, {"requests": 16}),
        ("experts", 5.0, {"objective": "latency"}),
    ],
)
def test_nothing_on_a_grid_with_layers_on_the_cpu_is_better(
    model: str, gigabytes: float, changes: dict[str, Any]
) -> None:
    spec = SMALL if model == "llama" else short(plannable_spec("qwen3-30b-a3b"), 8)
    size = int(gigabytes * 1e9)
    search = Search(ask(spec, "a10g", "server-genoa", **{"device_bytes": size, **changes}))
    best = search.best(AUTO)
    assert best is not None
    assert best.candidate.on_cpu
    apart = [Elsewhere(s, n, "host") for s in range(0, 9, 2) for n in range(0, max(1, s - 1), 2)]
    apart += [Elsewhere(0, n, how) for how in ("cpu", "cpu-mlp") for n in range(1, 9)]
    apart += [Elsewhere(s, n, "cpu") for s in (2, 4, 6) for n in range(1, 9 - s)]
    tried = 0
    for elsewhere in apart:
        for hosted in (0, 1, 3, 8, 16):
            for device in (0, 1, 4, 8, 16):
                strategy = "ride-along" if hosted else "gpu-only"
                candidate = candidate_of(strategy, elsewhere, device, hosted)
                if candidate.rows > 0 and search.footprint.fits(candidate):
                    found = search.predictor.predict(candidate).rates.job_tokens_per_s
                    assert found <= best.tokens_per_s * 1.01, candidate
                    tried += 1
    assert tried > 5


def test_one_request_leaves_layers_where_they_lie_if_memory_is_faster_than_the_link() -> None:
    search = Search(ask("llama-3.1-70b", "rtx4090", "server-genoa", objective="latency"))
    best = search.best(AUTO)
    assert best is not None
    assert best.candidate.elsewhere.lent >= 60
    rates = best.prediction.rates
    # 68 layers of 1.7 GB at 345 GB/s, 12 at 907; prompts still stream 70 of them
    assert rates.tpot_s == pytest.approx(68 * 1.712 / 345 + 12 * 1.712 / 907, rel=0.05)
    assert rates.ttft_s == pytest.approx(70 * 1.712 / 25, rel=0.05)
    plan = online_plan(search, best)
    assert [rule.max_tokens for rule in plan.cpu_rules] == [1]
    assert OnlinePlan.from_json(plan.to_json()) == plan
    choice = SweepChoice.of_plan(plan.weights, plan.cpu_rules)
    assert len(choice.of(1).on_cpu) == best.candidate.on_cpu
    assert choice.of(2).on_cpu == ()
    assert len(choice.usual.loaded) == best.candidate.streamed
    streamed = search.best(POLICIES["ride-along"])
    assert streamed is not None
    assert best.tokens_per_s > 8 * streamed.tokens_per_s


def test_fewer_bits_leave_less_elsewhere_and_cross_the_link_sooner() -> None:
    found: list[Option] = []
    for bits in (None, 8, 4):
        question = ask("llama-3.1-70b", "a100-40", "lm-offload", objective="latency")
        if bits is not None:
            formats = uniform_formats(question.model, bits, None)
            precision = replace(question.precision, quantized=formats)
            question = replace(question, precision=precision)
        best = Search(question).best(POLICIES["ride-along"])
        assert best is not None
        found.append(best)
    streamed = [option.candidate.streamed for option in found]
    assert streamed[0] > streamed[1] > streamed[2] == 0
    assert found[1].tokens_per_s > 1.3 * found[0].tokens_per_s
    # resident in 4 bits, what is left is dequantizing on the accelerator, without kernels for it
    rates = found[2].prediction.rates
    parameters = 80 * layer_matrix_parameters(plannable_spec("llama-3.1-70b"))
    passes_s = 32 * parameters / (1555e9 * 0.9)
    assert passes_s < rates.tpot_s < 1.3 * passes_s


def test_a_slow_host_computes_nothing() -> None:
    best = Search(ask("llama-3.1-70b", "rtx4090", "park-egger", host_bytes=10**12)).best(AUTO)
    assert best is not None
    assert not best.candidate.on_cpu


@pytest.mark.parametrize(("policy", "how"), [("n-gpu-layers", "cpu"), ("n-cpu-moe", "cpu-mlp")])
def test_policies_of_layers_on_the_cpu_stream_none(policy: str, how: str) -> None:
    experts = ask("qwen3-30b-a3b", "rtx4090", "server-genoa", requests=4)
    option = Search(experts).best(POLICIES[policy])
    assert option is not None
    assert option.candidate.how == how
    assert 0 < option.candidate.on_cpu < 48
    assert option.candidate.streamed == 0


def test_less_memory_streams_more_and_earns_less() -> None:
    plans = [tight(gigabytes).best(AUTO) for gigabytes in (20.0, 6.5, 4.5)]
    assert all(plans)
    streamed = [plan.candidate.streamed for plan in plans if plan]
    rates = [plan.tokens_per_s for plan in plans if plan]
    assert streamed[0] == 0 < streamed[2]
    assert rates == sorted(rates, reverse=True)


def test_host_attention_pays_where_weights_are_streamed() -> None:
    best = Search(ask("llama-3.1-70b", "rtx4090", "server-genoa")).best(AUTO)
    assert best is not None
    assert best.candidate.strategy == "ride-along"
    assert best.candidate.host_rows > best.candidate.device_rows
    assert best.prediction.bottleneck[0] == "link to the accelerator"


@pytest.mark.parametrize(
    ("model", "accelerator", "host", "requests"),
    [
        ("llama-3.1-70b", "rtx4090", "server-genoa", 395),
        ("llama-3.1-70b", "rtx4090", "server-genoa", 400),
        ("llama-3.1-8b", "l4", None, 1000),
    ],
)
def test_no_policy_searched_by_itself_beats_the_plan(
    model: str, accelerator: str, host: str | None, requests: int
) -> None:
    question = ask(model, accelerator, host, requests=requests)
    best = Search(question).best(AUTO)
    assert best is not None
    for policy in POLICIES.values():
        option = Search(question).best(policy)
        assert option is None or option.tokens_per_s <= best.tokens_per_s * 1.00001, policy.name


def test_latency_is_planned_for_one_request() -> None:
    search = Search(ask(objective="latency"))
    best = search.best(AUTO)
    assert best is not None
    assert best.candidate == Candidate("gpu-only", 0, 1, 0)
    rates = best.prediction.rates
    # 15 GB of weights at 510 GB/s, and 512 tokens of 16 GFLOP at 49 TFLOP/s
    assert rates.tpot_s == pytest.approx(0.0305, rel=0.1)
    assert rates.ttft_s == pytest.approx(0.17, rel=0.15)
    assert search.predictor.request_s(rates) == pytest.approx(rates.ttft_s + 127 * rates.tpot_s)


def test_a_request_that_outgrows_the_accelerator_is_split_over_both_tiers() -> None:
    search = Search(ask(prompt="2000", generate="100000", objective="latency"))
    best = search.best(POLICIES["ride-along"])
    assert best is not None
    assert (best.candidate.strategy, best.candidate.rows) == ("ride-along", 1)
    assert 0.3 < best.candidate.device_share < 0.9
    device, host = search.footprint.uses(best.candidate)
    assert 0 <= device.free_bytes < 0.05 * device.capacity_bytes
    assert host.kv_bytes > 2e9
    # the accelerator reads weights and its share, and waits for the rest in each layer
    half = Candidate("ride-along", 0, 0, 1, device_share=0.45)
    assert search.footprint.fits(half)
    rest_s = 0.55 * search.question.lengths.context_tokens * 131072 / 35e9
    tpot_s = search.predictor.predict(half).rates.tpot_s
    assert tpot_s == pytest.approx(0.0305 + rest_s, rel=0.1)
    whole = search.predictor.predict(replace(half, device_share=0.0))
    assert best.prediction.rates.tpot_s <= tpot_s < 0.7 * whole.rates.tpot_s


def test_a_bound_on_time_per_token_is_kept_and_costs_throughput() -> None:
    free = Search(ask()).best(AUTO)
    bound = Search(ask(tpot_bound_s=0.06)).best(AUTO)
    assert free is not None
    assert bound is not None
    assert bound.prediction.rates.worst_tpot_s <= 0.06 < free.prediction.rates.worst_tpot_s
    assert bound.tokens_per_s < free.tokens_per_s


def test_a_bound_that_nothing_keeps_is_refused_with_the_fastest() -> None:
    with pytest.raises(ConfigError, match=r"nothing keeps 5 ms per token.*is 3\d(\.\d)? ms"):
        answer(ask(tpot_bound_s=0.005))


def test_a_model_that_fits_nowhere_is_refused_with_the_sizes() -> None:
    with pytest.raises(ConfigError, match=r"does not fit.*131\.\d GiB.*which may give 32\.0 GiB"):
        answer(with_disk(ask("llama-3.1-70b"), None))


def test_the_answer_ranks_what_it_rejects_and_prices_more_of_everything() -> None:
    found = answer(ask("opt-30b", "a4000"), compare=True)
    rates = [option.tokens_per_s for option in found.alternatives]
    assert len(rates) == 3
    assert rates == sorted(rates, reverse=True)
    assert rates[0] <= found.chosen.tokens_per_s
    changes = {entry.change: entry.option.tokens_per_s for entry in found.sensitivities}
    assert list(changes) == ["+1 GB GPU memory", "+10 GB/s link", "+8 cores"]
    assert min(changes.values()) >= found.chosen.tokens_per_s
    assert min(entry.gain for entry in found.sensitivities) >= 0
    assert changes["+10 GB/s link"] > 1.05 * found.chosen.tokens_per_s
    by_policy = {result.policy.name: result.option for result in found.policies}
    assert list(by_policy) == list(POLICIES)
    assert by_policy["auto"] == found.chosen
    zero = by_policy["zero-inference"]
    assert zero is not None
    assert (zero.candidate.streamed, zero.candidate.host_rows) == (48, 0)
    simple = by_policy["simple"]
    assert simple is not None
    assert simple.candidate.device_rows == 0
    assert found.spare_bytes < 0
    assert found.plan.max_num_seqs == found.chosen.candidate.rows


def test_a_job_takes_as_long_as_its_tokens_and_its_arrivals() -> None:
    search = Search(ask(requests=1000))
    best = search.best(AUTO)
    assert best is not None
    rates = best.prediction.rates
    # beside the steady rate: the first rows' prompts, and the last rows' tokens
    steady_s = 1000 * 128 / rates.tokens_per_s
    assert steady_s < search.predictor.job_s(rates) < steady_s + search.predictor.request_s(rates)
    spread = replace(search.question.lengths, duration_s=10_000.0)
    slow = Search(replace(search.question, lengths=spread)).predictor
    assert slow.job_s(rates) == pytest.approx(10_000 + slow.request_s(rates))


def arriving(requests_per_s: float) -> Answer:
    question = ask("llama-3.1-8b", "rtx4090", requests=1000)
    spread = replace(question.lengths, duration_s=999 / requests_per_s)
    return answer(replace(question, lengths=spread))


def test_requests_that_come_slowly_run_alone_and_see_it() -> None:
    found = arriving(0.1)
    assert found.arrivals is not None
    assert found.arrivals.keeps_up
    assert found.arrivals.rows == 1
    assert found.arrivals.tokens_per_s == pytest.approx(0.1 * 128)
    alone = answer(ask("llama-3.1-8b", "rtx4090", objective="latency")).chosen.prediction.rates
    assert found.arrivals.rates.tpot_s == pytest.approx(alone.tpot_s, rel=0.15)
    assert found.arrivals.rates.tpot_s < 0.5 * found.chosen.prediction.rates.tpot_s
    assert found.job_s == pytest.approx(9990 + found.request_s)


def test_rows_grow_with_the_rate_until_requests_queue() -> None:
    found = [arriving(rate) for rate in (2.0, 8.0, 20.0)]
    loads = [each.arrivals for each in found]
    assert [load.keeps_up for load in loads if load] == [True, True, False]
    rows = [load.rows for load in loads if load]
    assert 1 < rows[0] < rows[1] < rows[2] == found[2].chosen.candidate.rows
    # Little's law: as many run as come in the time that each takes
    assert rows[1] == pytest.approx(8 * found[1].request_s, rel=0.2)
    assert found[2].job_s > 1.5 * 999 / 20
    assert answer(ask()).arrivals is None


def test_a_job_is_not_shorter_than_its_prompts_and_then_its_tokens() -> None:
    search = Search(ask("llama-3.1-70b", "rtx4090", "server-genoa", requests=394))
    best = search.best(AUTO)
    assert best is not None
    assert best.candidate.rows == 394  # all at once: the first and the last wave are one
    weights_s = best.candidate.streamed * search.footprint.layer_bytes / 25e9
    sweeps = 394 * 512 / 2048 + 127
    assert search.predictor.job_s(best.prediction.rates) >= sweeps * weights_s


@pytest.mark.parametrize("tpot_bound_s", [None, 10.0])
def test_more_memory_is_never_worse_where_prompts_set_the_pace(tpot_bound_s: float | None) -> None:
    whole = ask("llama-3.1-8b", "a100-80", requests=1000, tpot_bound_s=tpot_bound_s)
    rates: list[float] = []
    for gib in (20, 38, 45, 56, 74):
        search = Search(replace(whole, device_bytes=gib << 30))
        best = search.best(POLICIES["gpu-only"])
        assert best is not None
        rates.append(best.tokens_per_s)
        # a sweep of 2048 tokens decodes, and reads 512 tokens of a prompt per 127 decoded
        assert best.candidate.rows <= 408
    assert all(more >= less * 0.999 for less, more in pairwise(rates)), rates


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


def test_what_limits_is_read_from_sweeps_with_prompts_as_well() -> None:
    precision = Precision.uniform(DType.BFLOAT16)  # slow on a T4, where prompts set the pace
    # so many that how rows fill up and run out does not count
    found = answer(ask("llama-3.1-8b", "t4", requests=50_000, precision=precision))
    gains = {entry.change: entry.gain for entry in found.sensitivities}
    assert gains["+10 GB/s link"] < 0.02  # of the sweeps in which no prompt begins
    prediction = found.chosen.prediction
    assert prediction.rates.prefill_share > 0.7
    assert prediction.bottleneck[0] == "accelerator"
    assert prediction.bottleneck[1] > 0.9
    decode = prediction.decode
    assert decode.h2d_s > decode.accelerator_s  # a sweep that only decodes says otherwise


def test_a_bound_never_makes_a_plan_better() -> None:
    free = Search(ask("llama-3.1-8b", "a100-80", requests=1000)).best(AUTO)
    bound = Search(ask("llama-3.1-8b", "a100-80", requests=1000, tpot_bound_s=10.0)).best(AUTO)
    assert free is not None
    assert bound is not None
    assert bound.tokens_per_s <= free.tokens_per_s * 1.001


@pytest.mark.parametrize("name", NOT_BUILT)
def test_a_policy_without_its_means_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ConfigError, match=f"policy '{name}' cannot be planned: it needs"):
        find_policy(name)


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown policy 'best'; use one of: auto, gpu-only"):
        find_policy("best")


def test_grids_of_different_machines_agree() -> None:
    assert row_grid(0) == []
    assert row_grid(1) == [1]
    assert set(row_grid(100)[:-1]) <= set(row_grid(1000))
    assert row_grid(100)[-1] == 100


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
            same = replace(option.candidate, streamed=0) == replace(other.candidate, streamed=0)
            assert not same or abs(option.tokens_per_s / other.tokens_per_s - 1) >= 0.01
