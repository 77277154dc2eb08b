"""What a profile's measurements make of a plan, where times can be told by head."""

from dataclasses import replace

import pytest
from tests.support.profiles import (
    ATTENTION_START_S,
    KEY_S,
    LINEAR_FLOPS_PER_S,
    READ_BYTES_PER_S,
    host_measurements,
)
from tests.unit.planner.questions import ask, short

from tandem.cost.lane_work import LaneWork
from tandem.cost.stage import AttentionWork
from tandem.models.catalogue import plannable_spec
from tandem.plan.program import LaneShape, OpKind, Queue
from tandem.plan.templates import sweep_template
from tandem.planner.answer import answer
from tandem.planner.candidate import Candidate
from tandem.planner.demand import Demands
from tandem.planner.footprint import Footprint
from tandem.planner.host_alone import host_alone
from tandem.planner.load import LaneLoad, TierLoad
from tandem.planner.question import Question
from tandem.planner.search.search import Search
from tandem.profiling.hardware import host_facts
from tandem.profiling.measurements import Contention, HostMeasurements, StartTimes
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.kv_type import CodeType
from tandem.spec.parameters import layer_matrix_parameters
from tandem.spec.precision import Precision
from tandem.spec.tier import Tier

MEASURED = host_measurements()
LLAMA = plannable_spec("llama-3.1-8b")
ALONE = Precision(DType.FLOAT16, DType.FLOAT32, DType.FLOAT16)


def alone() -> Question:
    """Four layers on the measured host."""
    question = ask(short(LLAMA, 4), requests=50)
    return replace(
        question,
        hardware=host_alone("measured", host_facts(MEASURED, 16 << 30)),
        precision=ALONE,
        device_bytes=12 << 30,
        host_bytes=0,
        host_only=True,
        measured=MEASURED,
    )


def test_attention_beside_an_accelerator_takes_what_was_measured() -> None:
    question = ask(short(LLAMA, 2), measured=MEASURED)
    demands = Demands(question, Footprint(question).page)
    sweep = sweep_template(2, (LaneShape(device=False, host=True),))
    (attend, *_) = [op for op in sweep.ops if op.queue is Queue.CPU and op.kind is OpKind.ATTEND]
    decode = demands.of(attend, [LaneLoad(host=TierLoad(10, 999.0))])
    # the measured shape has the model's keys and values: 10 rows over 1,000 tokens each
    assert decode.alone_s == pytest.approx(ATTENTION_START_S + KEY_S * 10 * 1000)
    assumed = Demands(replace(question, measured=None), Footprint(question).page)
    assert assumed.of(attend, [LaneLoad(host=TierLoad(10, 999.0))]).alone_s != decode.alone_s


def test_appends_on_the_host_start_and_move_their_bytes() -> None:
    slower = replace(MEASURED, start=StartTimes(1e-3, 2e-3))
    found: list[float] = []
    for measured in (MEASURED, slower):
        question = ask(short(LLAMA, 2), measured=measured)
        demands = Demands(question, Footprint(question).page)
        sweep = sweep_template(2, (LaneShape(device=False, host=True),))
        append = next(op for op in sweep.ops if (op.queue, op.kind) == (Queue.CPU, OpKind.APPEND))
        assert demands.of(append, [LaneLoad()]).alone_s == 0
        demand = demands.of(append, [LaneLoad(host=TierLoad(100, 999.0))])
        size = 2 * 2 * 2 * LLAMA.kv_size * 100  # keys and values in 16 bits, read and written
        assert demand.alone_s == pytest.approx(
            measured.start.spinning_s + size / READ_BYTES_PER_S, rel=0.01
        )
        assert demand.alone_s * demand.dram_bytes_per_s == pytest.approx(size)
        found.append(demand.alone_s)
    assert found[1] - found[0] == pytest.approx(1e-3 - 3e-6)


def test_counted_work_takes_what_its_means_take() -> None:
    question = ask(short(LLAMA, 2), measured=MEASURED)
    demands = Demands(question, Footprint(question).page)
    sweep = sweep_template(2, (LaneShape(device=False, host=True),))
    (attend, *_) = [op for op in sweep.ops if op.queue is Queue.CPU and op.kind is OpKind.ATTEND]

    def counted(work: AttentionWork) -> float:
        per_tier = {Tier.HOST: work, Tier.DEVICE: AttentionWork(0, 0, 0)}
        tokens = {Tier.HOST: work.tokens, Tier.DEVICE: 0}
        return demands.of(attend, [LaneWork(work.tokens, 0, {0: per_tier}, (0, 0), tokens)]).alone_s

    rows, prompt = TierLoad(10, 999.0), TierLoad(chunk=400, offset=100.0)
    for load in (rows, prompt):
        means = demands.of(attend, [LaneLoad(host=load)]).alone_s
        assert counted(load.attention(0)) == pytest.approx(means)
    assert counted(AttentionWork(0, 0, 0)) == 0


def test_a_prompt_s_attention_takes_the_rate_of_the_fastest_products() -> None:
    slow, *others = MEASURED.linear
    seconds = tuple(tuple(10 * each for each in row) for row in slow.surface.seconds)
    slower = replace(slow, surface=replace(slow.surface, seconds=seconds))
    measured = replace(MEASURED, linear=(slower, *others))
    question = ask(short(LLAMA, 2), measured=measured)
    demands = Demands(question, Footprint(question).page)
    sweep = sweep_template(2, (LaneShape(device=False, host=True),))
    (attend, *_) = [op for op in sweep.ops if op.queue is Queue.CPU and op.kind is OpKind.ATTEND]
    prompt = demands.of(attend, [LaneLoad(host=TierLoad(0, 0.0, 1000, 0.0))])
    pairs = 1000 * 1001 / 2
    flops = pairs * (4 * LLAMA.q_size + 5 * LLAMA.num_heads)
    assert prompt.alone_s == pytest.approx(flops / LINEAR_FLOPS_PER_S, rel=0.01)


@pytest.mark.parametrize(("rows", "bound"), [(1, "read"), (300, "computed")])
def test_decode_on_the_host_alone_is_its_products_and_attention(rows: int, bound: str) -> None:
    question = alone()
    model = question.model
    elements = model.num_layers * layer_matrix_parameters(model)
    elements += model.hidden_size * model.vocab_size
    context = question.lengths.context_tokens + 1
    products_s = elements * 2 / READ_BYTES_PER_S
    if bound == "computed":
        products_s = 2 * elements * rows / LINEAR_FLOPS_PER_S
    attention_s = model.num_layers * KEY_S * rows * context
    found = Search(question).predictor.rates(Candidate("gpu-only", 0, rows, 0))
    alone_s = Search(replace(question, objective="latency")).predictor.rates(
        Candidate("gpu-only", 0, rows, 0)
    )
    expected = products_s + attention_s
    # norms, rotation, sampling and the attention's own start come on top, and prompts to `found`
    assert expected < alone_s.tpot_s < 1.1 * expected
    assert found.tpot_s > alone_s.tpot_s


def test_the_answer_on_the_host_alone_has_one_memory_and_no_link() -> None:
    found = answer(alone())
    assert found.chosen.candidate.strategy == "gpu-only"
    assert found.chosen.candidate.streamed == 0
    assert found.plan.host_blocks == 0
    assert found.host.capacity_bytes == 0
    assert [entry.change for entry in found.sensitivities] == ["+1 GB memory"]
    assert found.sensitivities[0].gain > -0.01


def test_what_does_not_fit_the_host_alone_is_refused() -> None:
    with pytest.raises(ConfigError, match="does not fit"):
        answer(replace(alone(), device_bytes=2 << 30))


def test_there_are_no_policies_on_the_host_alone() -> None:
    for policy, compare in (("ride-along", False), ("auto", True)):
        with pytest.raises(ConfigError, match="leave --policy and --compare-policies out"):
            answer(alone(), policy, compare)


def test_what_was_not_measured_is_said_or_refused() -> None:
    lines = answer(alone()).extrapolated
    # the measured weights have 1 to 16 million elements, the head 525 million
    assert any("525,336,576 weights of a matrix" in line for line in lines)
    long = ask(short(LLAMA, 4), prompt="900", requests=50).lengths
    lines = answer(replace(alone(), lengths=long)).extrapolated
    assert any("rows of a product; measured are 1 to 512" in line for line in lines)
    assert answer(ask(measured=None)).extrapolated == ()
    short_context = ask(short(LLAMA, 4), prompt="20", generate="8", requests=8)
    inside = replace(alone(), lengths=short_context.lengths)
    assert any("tokens of context" in line for line in answer(inside).extrapolated)
    coded = replace(alone(), precision=replace(ALONE, kv=CodeType.INT8))
    with pytest.raises(ConfigError, match="no attention over a KV cache of int8"):
        Search(coded)
    few = replace(MEASURED, linear=MEASURED.linear[:2])
    precision = replace(ALONE, weights=DType.BFLOAT16)
    unmeasured = replace(alone(), precision=precision, measured=few)
    with pytest.raises(ConfigError, match="no products with weights of bfloat16"):
        Search(unmeasured)


def test_a_host_whose_products_are_slower_is_slower() -> None:
    def slowed(factor: float) -> Question:
        linear = tuple(
            replace(
                times,
                surface=replace(
                    times.surface,
                    seconds=tuple(tuple(factor * s for s in row) for row in times.surface.seconds),
                ),
            )
            for times in MEASURED.linear
        )
        return replace(alone(), measured=replace(MEASURED, linear=linear))

    rates = [answer(slowed(factor)).chosen.tokens_per_s for factor in (0.5, 1.0, 2.0)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 1.2 * rates[1] > 1.44 * rates[2]


def test_experts_are_priced_by_those_that_are_needed() -> None:
    experts = short(plannable_spec("qwen3-30b-a3b"), 2)
    question = replace(alone(), model=experts)
    one, many = (
        Search(replace(question, objective="latency"))
        .predictor.rates(Candidate("gpu-only", 0, rows, 0))
        .tpot_s
        for rows in (1, 64)
    )
    everything_s = 2 * 128 * 3 * 2048 * 768 * 2 / READ_BYTES_PER_S
    assert one < 0.5 * everything_s < everything_s * 0.9 < many


def test_contention_lengthens_sweeps_whose_parts_run_at_once() -> None:
    """Attention on the host beside streamed weights: what both lose to each other is in the sweep,
    and nothing is where one of them is not.
    """
    alone, beside = 18e9, 9e9
    disturbed = Contention("attention", "link", "memory", "link", alone, beside, 12e9, 6e9)
    plain = replace(MEASURED, contention=())
    worse = replace(MEASURED, contention=(disturbed,))

    def decode_s(measured: HostMeasurements, candidate: Candidate) -> float:
        facts = host_facts(measured, 64 << 30)
        question = ask(short(LLAMA, 8), measured=measured)
        link = replace(question.hardware.link, h2d_bytes_per_s=12e9, d2h_bytes_per_s=12e9)
        hardware = replace(question.hardware, host=facts, link=link)
        question = replace(question, hardware=hardware)
        return Search(question).predictor.predict(candidate).decode.period_s

    both = Candidate("ride-along", streamed=8, device_rows=0, host_rows=200)
    assert decode_s(worse, both) > 1.1 * decode_s(plain, both)
    for one in (
        Candidate("ride-along", streamed=0, device_rows=0, host_rows=200),
        Candidate("gpu-only", streamed=8, device_rows=8, host_rows=0),
    ):
        assert decode_s(worse, one) == pytest.approx(decode_s(plain, one), rel=0.01)
