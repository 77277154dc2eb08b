"""What the ceiling of batch jobs once ruled out, and plans do."""

from dataclasses import replace

import pytest
from tests.property.test_offline_planner import few_bits
from tests.unit.planner.questions import ask, short, with_disk

from tandem.models.catalogue import plannable_spec
from tandem.planner.offline.ceiling import BlockCeilings
from tandem.planner.offline.policies import OFFLINE_POLICIES
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.offline.times import BlockTimes
from tandem.planner.question import Lengths, Question
from tandem.spec.precision import Precision
from tandem.spec.units import GIB
from tandem.spec.workload import RequestShape, Workload

FEW_BITS = short(plannable_spec("llama-3.1-70b"), 8)

FEW_TOKENS = replace(
    ask(
        short(plannable_spec("opt-30b"), 6),
        "t4",
        "lm-offload",
        prompt="1",
        generate="2",
        requests=2,
    ),
    device_bytes=3_699_376_128,
    host_bytes=7_768_689_868,
)
"""Prompts on the host need more of the accelerator's memory than what they need there."""

HALVES = with_disk(
    replace(
        ask(
            short(plannable_spec("gemma-3-27b"), 12), "rtx4090", "lm-offload", prompt="1500",
            generate="8", requests=5,
        ),
        device_bytes=5_154_521_600,
        host_bytes=1_981_808_640,
    ),
    2e9,
)  # fmt: skip
"""Two blocks of 2.5 sequences, more than two and fewer than three."""

NONE_FITS = with_disk(
    replace(
        ask(FEW_BITS, "t4", "server-genoa", prompt="1", generate="300", requests=60),
        precision=few_bits(FEW_BITS),
        device_bytes=4_141_282_611,
        host_bytes=4_299_581_030,
    ),
    7e9,
)


EXPERTS = short(plannable_spec("qwen3-30b-a3b"), 3)


def straggling_experts(device_bytes: int, precision: Precision | None = None) -> Question:
    """Few of 63 requests run for long, so that most passes read few experts."""
    groups = (3, 147, 98), (1, 384, 124), (3, 472, 177), (56, 39, 1)
    shapes = tuple(RequestShape(*lengths) for count, *lengths in groups for _ in range(count))
    lengths = Lengths.of(Workload("stragglers", shapes))
    question = ask(EXPERTS, "rtx4090", lengths=lengths)
    return replace(question, device_bytes=device_bytes, precision=precision or question.precision)


def straggling(*groups: tuple[int, int]) -> Question:
    """Requests of 8 tokens, so many that generate so many tokens each."""
    shapes = tuple(RequestShape(8, generated) for count, generated in groups for _ in range(count))
    return ask("opt-6.7b", "a4000", lengths=Lengths.of(Workload("stragglers", shapes)))


STRAGGLERS = [
    straggling((1, 30), (39, 1)),
    straggling((2, 12), (39, 2)),
    straggling((1, 100), (20, 2)),
    straggling((1, 12), (39, 1)),
]
"""Few sequences are in a pass in the mean, and one program reads all prompts in one part."""


FEW_EXPERTS = [
    straggling_experts(20 * GIB),
    straggling_experts(5 * GIB),
    straggling_experts(20 * GIB, few_bits(EXPERTS)),
]
"""Passes of few sequences read so few that ceilings of alike ones lay a quarter too low."""


@pytest.mark.parametrize("question", [FEW_TOKENS, HALVES, *STRAGGLERS, *FEW_EXPERTS])
def test_the_best_plan_does_not_exceed_the_ceiling(question: Question) -> None:
    best = OfflineSearch(question).best(OFFLINE_POLICIES["auto"])
    ceiling = BlockCeilings(question, BlockTimes(question)).ceiling()
    assert best is not None
    assert ceiling is not None
    assert best.tokens_per_s <= ceiling.tokens_per_s * (1 + 1e-9)


def test_what_the_dual_simplex_never_tells_to_contradict_itself_is_told() -> None:
    assert BlockCeilings(NONE_FITS, BlockTimes(NONE_FITS)).ceiling() is None
    assert OfflineSearch(NONE_FITS).best(OFFLINE_POLICIES["auto"]) is None
