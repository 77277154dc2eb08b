"""What the search finds, against grids and against what must come out."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from tests.unit.planner.questions import SMALL, ask, short

from tandem.models.catalogue import plannable_spec
from tandem.plan.online import OnlinePlan
from tandem.plan.sweep_layers import SweepChoice
from tandem.planner.answer import online_plan
from tandem.planner.candidate import Candidate, candidate_of
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.option import Option
from tandem.planner.policies import POLICIES
from tandem.planner.prediction import Predictor
from tandem.planner.search.candidates import row_grid
from tandem.planner.search.search import Search
from tandem.spec.parameters import layer_matrix_parameters
from tandem.spec.quantized_maps import uniform_formats

AUTO = POLICIES["auto"]


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
                    passes = 8 if strategy in ("asymmetric", "symmetric") else 0
                    candidate = Candidate(strategy, streamed, device, hosted, passes=passes)
                    if not 0 < candidate.rows <= 40 or not search.footprint.fits(candidate):
                        continue
                    if candidate.has_cohorts and bool(device) == candidate.halves:
                        continue  # the sweep would be empty, or halves beside others
                    if passes and streamed:
                        continue  # it would be at two layers in turns
                    found = search.predictor.predict(candidate).rates.job_tokens_per_s
                    assert found <= best.tokens_per_s * 1.01, candidate


def test_embeddings_alone_make_room_where_that_is_enough() -> None:
    best = tight(5.5, requests=6, generate="600").best(AUTO)
    assert best is not None
    assert best.candidate.elsewhere == Elsewhere(embedding=True)
    plenty = tight(20.0, requests=6, generate="600").best(AUTO)
    assert plenty is not None
    assert plenty.candidate.elsewhere == Elsewhere()
    without = tight(5.5, requests=6, generate="600", host_bytes=0).best(AUTO)
    assert without is None


@pytest.mark.parametrize(
    ("model", "gigabytes", "changes"),
    [
        ("llama", 4.5, {"requests": 1}),
        ("llama", 4.5, {"objective": "latency"}),
        ("llama", 3.4, {"requests": 12}),
        ("llama", 4.4, {"requests": 6, "generate": "600"}),
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
    apart += [each._replace(mlps=True) for each in apart if each.streamed > 2]
    apart += [Elsewhere(0, n, how) for how in ("cpu", "cpu-mlp") for n in range(1, 9)]
    apart += [Elsewhere(s, n, "cpu") for s in (2, 4, 6) for n in range(1, 9 - s)]
    apart += [each._replace(embedding=True) for each in apart]
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
    # resident in 4 bits, the accelerator reads codes, and 4 GB of embeddings and head
    rates = found[2].prediction.rates
    parameters = 80 * layer_matrix_parameters(plannable_spec("llama-3.1-70b"))
    read_s = parameters * (0.5 + 3 / 64) / (1555e9 * 0.9)
    assert read_s < rates.tpot_s < 1.3 * read_s


def test_a_slow_host_computes_nothing() -> None:
    best = Search(ask("llama-3.1-70b", "rtx4090", "park-egger", host_bytes=10**12)).best(AUTO)
    assert best is not None
    assert not best.candidate.on_cpu


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
    whole = search.predictor.predict(half._replace(device_share=0.0))
    assert best.prediction.rates.tpot_s <= tpot_s < 0.7 * whole.rates.tpot_s
    # and the engine is told
    plan = online_plan(search, best)
    assert 0.9 * plan.device_blocks < plan.split_blocks < plan.device_blocks


def test_a_bound_on_time_per_token_is_kept_and_costs_throughput() -> None:
    free = Search(ask()).best(AUTO)
    bound = Search(ask(tpot_bound_s=0.06)).best(AUTO)
    assert free is not None
    assert bound is not None
    assert bound.prediction.rates.worst_tpot_s <= 0.06 < free.prediction.rates.worst_tpot_s
    assert bound.tokens_per_s < free.tokens_per_s


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


def test_a_bound_never_makes_a_plan_better() -> None:
    free = Search(ask("llama-3.1-8b", "a100-80", requests=1000)).best(AUTO)
    bound = Search(ask("llama-3.1-8b", "a100-80", requests=1000, tpot_bound_s=10.0)).best(AUTO)
    assert free is not None
    assert bound is not None
    assert bound.tokens_per_s <= free.tokens_per_s * 1.001


def test_grids_of_different_machines_agree() -> None:
    assert row_grid(0) == []
    assert row_grid(1) == [1]
    assert set(row_grid(100)[:-1]) <= set(row_grid(1000))
    assert row_grid(100)[-1] == 100


def test_what_surely_comes_late_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = list[Candidate]()
    plain = Predictor.rough_bound

    def counted(predictor: Predictor, candidate: Candidate) -> float:
        looked.append(candidate)
        return plain(predictor, candidate)

    monkeypatch.setattr(Predictor, "rough_bound", counted)
    assert tight(4.5, requests=40, tpot_bound_s=1e-5).best(AUTO) is None
    assert not looked
    best = tight(4.5, requests=40, tpot_bound_s=0.05).best(AUTO)
    assert best is not None
    assert looked


@pytest.mark.parametrize(("layers", "prompt", "generate"), [(2, "1", "1000"), (3, "100", "500")])
def test_models_of_few_layers_have_no_cohorts_from_the_programme_either(
    layers: int, prompt: str, generate: str
):
    """There, sweeps in which cohorts follow each other again and again have no beginning."""
    model = short(plannable_spec("llama-2-7b"), layers)
    question = ask(model, "a10g", device_bytes=2 * 10**9, prompt=prompt, generate=generate)
    best = Search(question).best(AUTO)
    assert best is not None
    assert not best.candidate.has_cohorts
