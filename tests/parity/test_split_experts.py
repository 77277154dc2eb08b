"""Tokens stay those of transformers when the CPU has some of a layer's experts, and the accelerator
the others.
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


@pytest.mark.parametrize(
    ("format", "name"),
    [(WeightFormat(8, 128), "threaded-cohorts"), (WeightFormat(4, 32), "exact-split")],
    ids=str,
)
def test_quantized_experts_give_the_tokens_of_the_same_numbers(
    format: WeightFormat, name: str, tmp_path: Path, ties: TieCount
) -> None:
    checkpoint = tmp_path, Reference(with_rounded_experts(tmp_path, format))
    mode = MODE_OF[name]
    setup = replace(
        mode.setup,
        homes=((0, "cpu-mlp"), (2, "cpu-mlp")),
        experts=((0, (1, 3, 4)), (2, (0, 7))),
    )
    check_placed(checkpoint, mode, setup, ties, weights=precision(tmp_path, format))
