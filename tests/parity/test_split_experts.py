"""Tokens stay those of transformers when the CPU has some of a layer's experts, and the accelerator
the others; also if the CPU's come there in large steps.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.parity.checkpoints import Checkpoints, Experts, Homes, check_placed
from tests.parity.greedy import Reference, TieCount
from tests.parity.modes import MODE_OF
from tests.parity.quantized_weights import precision, with_rounded_experts
from tests.parity.tiny_models import Case, moe, rotary
from transformers import MixtralConfig

from tandem.plan.sweep_layers import CpuRule
from tandem.plan.weights import Home
from tandem.spec.weight_format import WeightFormat

MIXTRAL, QWEN = (
    Case("mixtral", rotary(MixtralConfig, 32, 4, 2, 8, num_hidden_layers=4)),
    Case("qwen3moe", moe(32, 4, 2, 8, num_hidden_layers=5, mlp_only_layers=[0])),
)
EVERY: Homes = tuple((layer, "cpu-mlp") for layer in range(1, 4))
MIXED: Homes = ((1, "cpu-mlp"), (2, "cpu"), (3, "cpu-mlp"))
# 8 experts each; layer 2 keeps none where it is not named
FEW: Experts = ((1, (0, 5, 6)), (3, (2,)))
MANY: Experts = ((1, (0, 1, 2, 3, 4, 5, 7)), (2, (7,)), (3, (1, 2, 4, 6)))
CASES = (
    (MIXTRAL, "in-torch", EVERY, MANY),
    (MIXTRAL, "host-lane", EVERY, FEW),
    (MIXTRAL, "threaded-split", MIXED, FEW),
    (MIXTRAL, "exact-cohorts", EVERY, MANY),
    (QWEN, "chunked", EVERY, MANY),
    (QWEN, "exact-split", EVERY, FEW),
    (QWEN, "exact-split", MIXED, FEW),
    (QWEN, "threaded-cohorts", MIXED, FEW),
    (QWEN, "swapped", EVERY, MANY),
)


@pytest.mark.parametrize(
    ("case", "name", "homes", "experts"),
    [
        pytest.param(*run, id=f"{run[0].id}-{run[1]}-{'mixed' if run[2] is MIXED else 'every'}")
        for run in CASES
    ],
)
def test_greedy_tokens_equal_transformers(
    case: Case,
    name: str,
    homes: Homes,
    experts: Experts,
    checkpoints: Checkpoints,
    ties: TieCount,
) -> None:
    mode = MODE_OF[name]
    setup = replace(mode.setup, homes=homes, experts=experts)
    check_placed(checkpoints.get(case), mode, setup, ties)


HELD: Homes = tuple((layer, "host-mlp") for layer in range(1, 4))
BESIDE: Homes = ((0, "streamed"), (1, "host-mlp"), (2, "host-mlp"), (3, "cpu-mlp"))
BY_STEP = (CpuRule(4, (3,)),)  # the others' experts stay in the slots
COMING = (
    (MIXTRAL, "in-torch", HELD, MANY, BY_STEP),
    (MIXTRAL, "threaded-split", HELD, FEW, ()),
    (MIXTRAL, "exact-cohorts", HELD, MANY, BY_STEP),
    (MIXTRAL, "exact-split", BESIDE, MANY, (CpuRule(4, (2,)),)),
    (QWEN, "chunked", HELD, FEW, BY_STEP),
    (QWEN, "exact-split", HELD, MANY, BY_STEP),
    (QWEN, "swapped", HELD, FEW, BY_STEP),
    (QWEN, "host-lane", HELD, MANY, BY_STEP),
)


@pytest.mark.parametrize(
    ("case", "name", "homes", "experts", "rules"),
    [
        pytest.param(*run, id=f"{run[0].id}-{run[1]}-{'held' if run[2] is HELD else 'beside'}")
        for run in COMING
    ],
)
def test_tokens_are_the_same_where_the_other_experts_come(
    case: Case,
    name: str,
    homes: Homes,
    experts: Experts,
    rules: tuple[CpuRule, ...],
    checkpoints: Checkpoints,
    ties: TieCount,
) -> None:
    mode = MODE_OF[name]
    setup = replace(mode.setup, homes=homes, experts=experts, cpu_rules=rules)
    check_placed(checkpoints.get(case), mode, setup, ties)


@pytest.mark.parametrize("home", ["cpu-mlp", "host-mlp"])
@pytest.mark.parametrize(
    ("format", "name"),
    [(WeightFormat(8, 128), "threaded-cohorts"), (WeightFormat(4, 32), "exact-split")],
    ids=str,
)
def test_quantized_experts_give_the_tokens_of_the_same_numbers(
    format: WeightFormat, name: str, home: Home, tmp_path: Path, ties: TieCount
) -> None:
    checkpoint = tmp_path, Reference(with_rounded_experts(tmp_path, format))
    mode = MODE_OF[name]
    setup = replace(
        mode.setup,
        homes=((0, home), (1, home), (2, home)),
        experts=((0, (1, 3, 4)), (2, (0, 7))),
        cpu_rules=(CpuRule(4, (2,)),) if home == "host-mlp" else (),
    )
    check_placed(checkpoint, mode, setup, ties, weights=precision(tmp_path, format))
