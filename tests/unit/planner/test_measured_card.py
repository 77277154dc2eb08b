"""What an accelerator's measurements make of a plan, where times can be told by head."""

from dataclasses import replace

import pytest
from tests.support.profiles import (
    CARD_ATTENTION_START_S,
    CARD_KEY_S,
    CARD_PAIRS_FLOPS_PER_S,
    ELEMENTS,
    ROWS,
    accelerator_measurements,
)
from tests.unit.planner.questions import ask, short

from tandem.cost.lane_work import LaneWork
from tandem.cost.stage import AttentionWork
from tandem.models.catalogue import plannable_spec
from tandem.plan.program import LaneShape, OpKind, Part, ProgramOp, Queue
from tandem.plan.templates import sweep_template
from tandem.planner.answer import answer
from tandem.planner.candidate import Candidate
from tandem.planner.demand import Demands
from tandem.planner.footprint import Footprint
from tandem.planner.load import LaneLoad, TierLoad
from tandem.planner.policies import POLICIES
from tandem.planner.question import Question
from tandem.planner.search.search import Search
from tandem.planner.sweep_load import decode_load
from tandem.planner.sweeps import Sweeps
from tandem.planner.wrong_rates import wrong_machines
from tandem.profiling.hardware import accelerator_facts, link_facts
from tandem.profiling.measurements import LinearTimes, LinkDirection
from tandem.profiling.surface import Curve, Surface
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.kv_type import CodeType
from tandem.spec.quantized_maps import uniform_formats
from tandem.spec.tier import Tier

READ_BYTES_PER_S, FLOPS_PER_S = 400e9, 40e12


def linear_s(elements: float, rows: float, element_bytes: float) -> float:
    return max(elements * element_bytes / READ_BYTES_PER_S, 2 * elements * rows / FLOPS_PER_S)


def linear_times(kind: str, element_bytes: float) -> LinearTimes:
    times = tuple(tuple(linear_s(e, r, element_bytes) for r in ROWS) for e in ELEMENTS)
    return LinearTimes(kind, Surface(ELEMENTS, ROWS, times))


CARD = replace(
    accelerator_measurements(),
    linear=(
        *(linear_times(dtype.value, dtype.size_bytes) for dtype in DType),
        linear_times("int4/64", 0.55),
    ),
)
LLAMA_WHOLE = plannable_spec("llama-3.1-8b")
LLAMA = short(LLAMA_WHOLE, 2)
PAIR_FLOPS = 32 * (4 * 128 + 5)


def asked(**changes: object) -> Question:
    question = ask(LLAMA, measured_card=CARD, requests=50)
    hardware = replace(
        question.hardware, accelerator=accelerator_facts(CARD), link=link_facts(CARD)
    )
    return replace(question, hardware=hardware, **changes)


def priced(question: Question, op: ProgramOp, *lanes: LaneLoad | LaneWork) -> float:
    return Demands(question, Footprint(question).page).of(op, lanes).alone_s


def operation(kind: OpKind, part: Part = Part.NONE) -> ProgramOp:
    ops = sweep_template(2, (LaneShape(),)).ops
    on_device = (op for op in ops if op.queue is Queue.ACCEL)
    return next(op for op in on_device if op.kind is kind and op.part is part)


def test_decode_attention_takes_what_was_measured() -> None:
    attend = operation(OpKind.ATTEND)
    found = priced(asked(), attend, LaneLoad(TierLoad(10, 999.0)))
    assert found == pytest.approx(CARD_ATTENTION_START_S + CARD_KEY_S * 10 * 1000)
    # half as many keys and values of a token
    narrow = replace(LLAMA, num_kv_heads=4)
    assert priced(asked(model=narrow), attend, LaneLoad(TierLoad(10, 999.0))) == found / 2


@pytest.mark.parametrize(
    ("load", "pairs"),
    [
        (TierLoad(chunk=512), 512 * 513 / 2),
        (TierLoad(chunk=1024, offset=-256.0), 512 * 513),  # two prompts of 512
        (TierLoad(chunk=100, offset=900.0), 100 * 950.5),
        (TierLoad(chunk=2048, offset=30000.0), 2048 * 31024.5),  # longer than any measured
        (TierLoad(chunk=1), 1),
    ],
)
def test_a_prompt_s_attention_takes_what_as_many_pairs_took(load: TierLoad, pairs: float) -> None:
    found = priced(asked(), operation(OpKind.ATTEND), LaneLoad(load))
    assert found == pytest.approx(pairs * PAIR_FLOPS / CARD_PAIRS_FLOPS_PER_S, rel=0.02)


def test_counted_work_takes_what_its_means_take() -> None:
    attend = operation(OpKind.ATTEND)
    for load in (TierLoad(10, 999.0), TierLoad(chunk=400, offset=100.0)):
        work = load.attention(0)
        per_tier = {Tier.DEVICE: work, Tier.HOST: AttentionWork(0, 0, 0)}
        tokens = {Tier.DEVICE: work.tokens, Tier.HOST: 0}
        counted = LaneWork(work.tokens, 0, {0: per_tier}, (0, 0), tokens)
        means = priced(asked(), attend, LaneLoad(load))
        assert priced(asked(), attend, counted) == pytest.approx(means)


@pytest.mark.parametrize("rows", [1, 64, 512])
def test_products_follow_the_staircase(rows: int) -> None:
    """Those of 4096 by 14336 lie beyond 16 million elements: in proportion."""
    question = asked()
    found = priced(question, operation(OpKind.STAGE, Part.POST), LaneLoad(TierLoad(rows, 10.0)))
    elements = 4096 * 4096 + 3 * 4096 * 14336
    expected = linear_s(16e6, rows, 2) / 16e6 * elements
    # norms, activations and residuals come on top, at the memory's rate
    assert expected < found < 1.3 * expected + 5 * CARD.kernel_s


def test_codes_have_a_staircase_of_their_own() -> None:
    post, lane = operation(OpKind.STAGE, Part.POST), LaneLoad(TierLoad(1, 10.0))
    precision = replace(asked().precision, quantized=uniform_formats(LLAMA, 4, 64))
    few, plain = priced(asked(precision=precision), post, lane), priced(asked(), post, lane)
    assert 0.25 < few / plain < 0.32
    eight = replace(precision, quantized=uniform_formats(LLAMA, 8, 64))
    with pytest.raises(ConfigError, match="no products with weights of 8 bits"):
        priced(asked(precision=eight), post, lane)


def test_keys_and_values_are_quantized_at_the_measured_rate() -> None:
    precision = replace(asked().precision, kv=CodeType.INT4)
    times = (*CARD.attention, replace(CARD.attention[0], kind="int4"))
    prompts = (*CARD.prompts, replace(CARD.prompts[0], kind="int4"))
    card = replace(CARD, attention=times, prompts=prompts)
    found = priced(
        asked(precision=precision, measured_card=card),
        operation(OpKind.APPEND),
        LaneLoad(TierLoad(chunk=1000)),
    )
    assert found == pytest.approx(1000 * 2048 * 2 / 100e9 + CARD.kernel_s)
    with pytest.raises(ConfigError, match="no attention over a KV cache of int4"):
        Search(asked(precision=precision))
    missing = replace(card, codes=())
    with pytest.raises(ConfigError, match="not quantized keys and values to int4"):
        Search(asked(precision=precision, measured_card=missing))


def test_plans_follow_what_was_measured_and_no_linear_programme() -> None:
    def slowed(factor: float) -> float:
        attention = tuple(
            replace(
                times,
                surface=replace(
                    times.surface,
                    seconds=tuple(tuple(factor * s for s in row) for row in times.surface.seconds),
                ),
            )
            for times in CARD.attention
        )
        question = asked(measured_card=replace(CARD, attention=attention))
        return answer(question, "gpu-only").chosen.tokens_per_s

    rates = [slowed(factor) for factor in (0.5, 1.0, 4.0)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 1.1 * rates[2]
    assert Search(asked()).ceiling(POLICIES["auto"]) is None
    assert {number for errors, _ in wrong_machines(asked()) for number in errors} == {
        "host rates",
        "link",
    }


def test_where_weights_come_while_activations_go_both_directions_matter() -> None:
    slow = Curve((4096.0, 1e8), (1e-5, 1e8 / 1e9))

    def sweep_s(both_bytes_per_s: float, streamed: int) -> float:
        direction = LinkDirection(slow, slow, both_bytes_per_s)
        card = replace(CARD, h2d=direction, d2h=direction)
        question = asked(measured_card=card)
        hardware = replace(question.hardware, link=link_facts(card))
        question = replace(question, hardware=hardware, model=short(LLAMA_WHOLE, 8))
        candidate = Candidate("ride-along", streamed, 0, 100)
        load = decode_load(candidate, question.lengths, 2048, host_chunk=True)
        search = Search(question)
        sweeps = Sweeps(question, search.footprint, search.schedules)
        return sweeps.time(candidate.elsewhere, load).period_s

    assert sweep_s(0.5e9, streamed=8) > 1.02 * sweep_s(1e9, streamed=8)
    assert sweep_s(0.5e9, streamed=0) == pytest.approx(sweep_s(1e9, streamed=0))


def test_what_lies_outside_the_measurements_is_said() -> None:
    lines = answer(asked()).extrapolated
    assert any("525,336,576 weights of a matrix on the accelerator" in line for line in lines)
    long = ask(LLAMA, prompt="4000", requests=50).lengths
    lines = answer(asked(lengths=long)).extrapolated
    assert any("4,000 tokens of a prompt on the accelerator" in line for line in lines)
    assert any("tokens of context on the accelerator" in line for line in lines)
    assert answer(asked(measured_card=None)).extrapolated == ()


def test_facts_leave_codes_out() -> None:
    assert set(accelerator_facts(CARD).flops_per_s) == set(DType)
