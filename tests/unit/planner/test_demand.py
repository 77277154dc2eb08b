"""The planner's prices are those of the paced emulator, where both price the same."""

import itertools
from dataclasses import replace

import pytest
from tests.unit.planner.questions import alone, ask, short, with_dense

from tandem.cost.expert_use import ExpertUse
from tandem.cost.lane_work import LaneWork
from tandem.cost.split_mixture import MixtureBytes
from tandem.cost.stage import AttentionWork
from tandem.cost.sweep_time import layer_times, split_times
from tandem.models.catalogue import plannable_spec
from tandem.plan.program import LaneShape, OpKind, Part, Queue
from tandem.plan.sweep_layers import SweepLayers
from tandem.plan.templates import sampling_template, sweep_template
from tandem.plan.weights import StreamedLayers
from tandem.planner.demand import Demands
from tandem.planner.footprint import Footprint
from tandem.planner.load import LaneLoad, TierLoad
from tandem.planner.question import Question
from tandem.runtime.paced.truth import PacedTruth
from tandem.spec.kv_type import CodeType
from tandem.spec.tier import TIERS

MODELS = {
    "llama": short(plannable_spec("llama-3.1-8b"), 4),
    "mixtral": short(plannable_spec("mixtral-8x7b"), 4),
    "opt": short(plannable_spec("opt-6.7b"), 4),
    "gemma": short(plannable_spec("gemma-2-9b"), 4),  # a window in one layer of two
    "experts": short(plannable_spec("qwen3-30b-a3b"), 4),
    "some-experts": with_dense(short(plannable_spec("qwen3-30b-a3b"), 4), 0),
}
LOAD = LaneLoad(TierLoad(12, 5000.0, 256, 64.0), TierLoad(7, 3000.0, 0, 0.0), logits=20)


def work(question: Question) -> LaneWork:
    windows = question.model.layer_windows
    return LaneWork(
        tokens=LOAD.tokens,
        logits=LOAD.logits,
        by_window={w: {t: LOAD.seen(t, w) for t in TIERS} for w in set(windows)},
        windows=windows,
        appended={tier: LOAD.num_queries(tier) for tier in TIERS},
    )


@pytest.mark.parametrize("name", MODELS)
def test_operations_cost_what_the_emulator_takes_for_them(name: str) -> None:
    question = ask(MODELS[name])
    page = Footprint(question).page
    demands = Demands(question, page)
    truth = PacedTruth(question.model, page, question.hardware)
    placed = (
        SweepLayers(StreamedLayers((0, 1, 2, 3), on_disk=(1, 2))),
        SweepLayers(on_cpu=(1, 3)),
        SweepLayers(mlp_on_cpu=(0, 2)),
        SweepLayers(StreamedLayers((0, 1, 2, 3), mlps=(0, 3))),
    )
    lane = LaneShape(device=True, host=True)
    sweeps = [sweep_template(4, (lane,), layers).ops for layers in placed]
    kinds: set[OpKind] = set()
    for op in (*itertools.chain(*sweeps), *sampling_template(1).ops):
        if op.queue is Queue.CPU:
            continue  # the emulator's host works for real
        kinds.add(op.kind)
        if op.kind is OpKind.LOAD:
            expected = truth.load_s(op)
        elif op.kind is OpKind.READ:
            expected = truth.read_s(op)
        elif op.kind is OpKind.SAMPLE or op.part is Part.TOKENS:
            expected = truth.sample_s(op, LOAD.logits)
        else:
            expected = truth.compute_s(op, [work(question)])
        assert demands.of(op, [LOAD]).alone_s == pytest.approx(expected), op
    assert kinds == set(OpKind) - {OpKind.SWEEP}  # what engines replay


@pytest.mark.parametrize("name", ["mixtral", "experts"])
def test_mixtures_in_part_elsewhere_cost_what_emulator_and_engine_take_for_them(name: str) -> None:
    question = ask(MODELS[name], host="desktop-ddr5")
    spec, page = question.model, Footprint(question).page
    assert spec.experts is not None
    kept = spec.experts.count // 3
    ids = tuple(range(kept))
    truth = PacedTruth(spec, page, question.hardware, experts=dict.fromkeys(range(4), ids))
    demands = Demands(question, page)
    placed = (
        SweepLayers(mlp_on_cpu=(0, 2), split_mlps=(0, 2)),
        SweepLayers(StreamedLayers((0, 1, 2, 3), mlps=(0, 1, 2, 3))),
    )
    sweeps = [sweep_template(4, (LaneShape(),), layers).ops for layers in placed]
    sizes = MixtureBytes.of(spec, question.precision)
    use = ExpertUse.uniform(spec)
    split = split_times(
        spec, question.precision, LOAD.tokens, question.hardware, 0, ids, use, sizes
    )
    parts: set[Part] = set()
    for op in itertools.chain(*sweeps):
        found = demands.of(op, [LOAD], experts=kept).alone_s
        if op.queue is Queue.CPU:
            if op.kind is OpKind.STAGE:
                assert found == pytest.approx(split.cpu_s, rel=1e-6)
                parts.add(op.part)
        elif op.kind is OpKind.LOAD:
            assert found == pytest.approx(truth.load_s(op)) == pytest.approx(split.load_s)
        elif op.part in (Part.ROUTE, Part.EXPERTS, Part.RESIDUAL):
            assert found == pytest.approx(truth.compute_s(op, [work(question)]), rel=1e-6), op
            parts.add(op.part)
    assert parts == {Part.MLP, Part.ROUTE, Part.EXPERTS, Part.RESIDUAL}


def test_attention_on_the_host_takes_its_bytes_or_its_flops() -> None:
    question = ask(MODELS["llama"], host="g5.4xlarge")
    demands = Demands(question, Footprint(question).page)
    sweep = sweep_template(2, (LaneShape(device=False, host=True),))
    (attend, *_) = [op for op in sweep.ops if op.queue is Queue.CPU and op.kind is OpKind.ATTEND]
    decode = demands.of(attend, [LaneLoad(host=TierLoad(50, 1999.0))])
    # 50 rows of 2,000 tokens of 4 KiB, and 50 results of 16 KiB, at 35 GB/s
    assert decode.alone_s == pytest.approx((50 * 2000 * 4096 + 50 * 16384) / 35e9)
    assert decode.dram_bytes_per_s == pytest.approx(35e9)
    prefill = demands.of(attend, [LaneLoad(host=TierLoad(chunk=1024))])
    pairs = 1024 * 1025 / 2
    assert prefill.alone_s == pytest.approx(pairs * 4 * 4096 / 0.5e12, rel=0.02)
    assert prefill.dram_bytes_per_s < 35e9


def cpu_stage_s(question: Question, tokens: int) -> dict[Part, float]:
    demands = Demands(question, Footprint(question).page)
    placed = SweepLayers(on_cpu=(1,)), SweepLayers(mlp_on_cpu=(2,))
    sweeps = [sweep_template(4, (LaneShape(),), layers).ops for layers in placed]
    stages = [
        op for op in itertools.chain(*sweeps) if op.kind is OpKind.STAGE and op.queue is Queue.CPU
    ]
    lane = LaneLoad(TierLoad(tokens, 100.0), logits=tokens)
    return {op.part: demands.of(op, [lane]).alone_s for op in stages}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("tokens", [1, 16, 2048])
def test_stages_on_the_cpu_cost_what_an_engine_without_a_plan_decides_by(
    name: str, tokens: int
) -> None:
    question = ask(MODELS[name], host="desktop-ddr5")
    times = layer_times(question.model, question.precision, tokens, question.hardware)
    found = cpu_stage_s(question, tokens)
    # both sum rooflines, of stages there and of the layer here
    assert found[Part.MLP] == pytest.approx(times.mlp_cpu_s)
    assert found[Part.PRE] + found[Part.POST] == pytest.approx(times.cpu_s, rel=0.02)


def test_a_token_needs_some_experts_and_many_need_all() -> None:
    dense, experts = (ask(MODELS[name], host="desktop-ddr5") for name in ("llama", "experts"))
    one, many = (cpu_stage_s(experts, tokens)[Part.MLP] for tokens in (1, 200))
    assert one < 0.12 * many  # 8 of 128
    one, many = (cpu_stage_s(dense, tokens)[Part.MLP] for tokens in (1, 8))
    assert many == pytest.approx(one, rel=0.02)


@pytest.mark.parametrize(("flops", "ratio"), [(1e15, 0.28), (1e10, 12 / 8)])
def test_quantized_pages_take_fewer_bytes_and_more_arithmetic(flops: float, ratio: float) -> None:
    """With four queries per key each element takes 8 FLOPs, and 4 more to make it of its code."""
    question = ask(MODELS["llama"])
    host = replace(question.hardware.host, flops_per_s=flops)
    question = replace(question, hardware=replace(question.hardware, host=host))
    packed = replace(question, precision=replace(question.precision, kv=CodeType.INT4))
    sweep = sweep_template(2, (LaneShape(device=False, host=True),))
    (attend, *_) = [op for op in sweep.ops if op.queue is Queue.CPU and op.kind is OpKind.ATTEND]
    lane = LaneLoad(host=TierLoad(50, 1999.0))
    plain, small = (Demands(q, Footprint(q).page).of(attend, [lane]) for q in (question, packed))
    assert small.alone_s / plain.alone_s == pytest.approx(ratio, abs=0.02)


@pytest.mark.parametrize("kind", list(CodeType))
def test_codes_are_read_as_they_lie_by_every_kernel(kind: CodeType) -> None:
    question = ask(MODELS["llama"])
    host = alone(MODELS["llama"], host_bytes=20 << 30)
    ops = sweep_template(2, (LaneShape(),)).ops
    attend = next(op for op in ops if op.kind is OpKind.ATTEND)
    lane = LaneLoad(TierLoad(50, 1999.0))
    for asked in (question, host):
        packed = replace(asked, precision=replace(asked.precision, kv=kind))
        pages = [Footprint(each).page.bytes_per_block_layer for each in (asked, packed)]
        plain_s, small_s = (
            Demands(each, Footprint(each).page).of(attend, [lane]).alone_s
            for each in (asked, packed)
        )
        # results of queries come on top, and a launch
        assert small_s / plain_s == pytest.approx(pages[1] / pages[0], abs=0.05)


@pytest.mark.parametrize(
    ("tier", "window", "pairs", "keys"),
    [
        (TierLoad(10, 99.0), 0, 1000, 1000),
        (TierLoad(10, 99.0), 40, 400, 400),
        (TierLoad(chunk=100), 0, 5050, 100),
        (TierLoad(chunk=100, offset=50.0), 0, 10050, 150),
        # two prompts of 100 at once: each token sees 50.5 of its own
        (TierLoad(chunk=200, offset=-50.0), 0, 10100, 200),
        (TierLoad(chunk=100, offset=300.0), 64, 6400, 164),
    ],
)
def test_attention_is_counted_by_pairs_and_keys(
    tier: TierLoad, window: int, pairs: int, keys: int
) -> None:
    assert tier.attention(window) == AttentionWork(tier.tokens, pairs, keys)
    assert TierLoad().attention(window).tokens == 0
