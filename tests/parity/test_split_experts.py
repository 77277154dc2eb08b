"""Tokens stay those of transformers when the CPU has some of a layer's experts, and the accelerator
the others.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.parity.greedy import Reference, TieCount
from tests.parity.quantized_weights import precision, with_rounded_experts
from tests.parity.test_cpu_mlps import Experts, Homes, check_parity
from tests.parity.tiny_models import Case, build, moe, rotary
from transformers import MixtralConfig

from tandem.spec.weight_format import WeightFormat

MODELS = (
    Case("mixtral", rotary(MixtralConfig, 32, 4, 2, 8, num_hidden_layers=4)),
    Case("qwen3moe", moe(32, 4, 2, 8, num_hidden_layers=5, mlp_only_layers=[0])),
)
EVERY: Homes = tuple((layer, "cpu-mlp") for layer in range(1, 4))
MIXED: Homes = ((1, "cpu-mlp"), (2, "cpu"), (3, "cpu-mlp"))
# 8 experts each; layer 2 keeps none where it is not named
FEW: Experts = ((1, (0, 5, 6)), (3, (2,)))
MANY: Experts = ((1, (0, 1, 2, 3, 4, 5, 7)), (2, (7,)), (3, (1, 2, 4, 6)))
CASES = (
    ("mixtral", "in-torch", EVERY, MANY),
    ("mixtral", "host-lane", EVERY, FEW),
    ("mixtral", "threaded-split", MIXED, FEW),
    ("mixtral", "exact-cohorts", EVERY, MANY),
    ("qwen3moe", "chunked", EVERY, MANY),
    ("qwen3moe", "exact-split", EVERY, FEW),
    ("qwen3moe", "exact-split", MIXED, FEW),
    ("qwen3moe", "threaded-cohorts", MIXED, FEW),
    ("qwen3moe", "swapped", EVERY, MANY),
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("split-experts")


@pytest.fixture(scope="module")
def references(directory: Path) -> dict[str, Reference]:
    return {case.id: Reference(build(case, directory / case.id)) for case in MODELS}


@pytest.fixture(scope="module")
def ties() -> Iterator[TieCount]:
    count = TieCount()
    yield count
    count.check()


@pytest.mark.parametrize(
    ("model", "mode", "homes", "experts"),
    [
        pytest.param(*case, id=f"{case[0]}-{case[1]}-{'mixed' if case[2] is MIXED else 'every'}")
        for case in CASES
    ],
)
def test_greedy_tokens_equal_transformers(
    model: str,
    mode: str,
    homes: Homes,
    experts: Experts,
    directory: Path,
    references: dict[str, Reference],
    ties: TieCount,
) -> None:
    check_parity(directory / model, references[model], mode, homes, ties, experts=experts)


@pytest.mark.parametrize(
    ("format", "mode"),
    [(WeightFormat(8, 128), "threaded-cohorts"), (WeightFormat(4, 32), "exact-split")],
    ids=str,
)
def test_quantized_experts_give_the_tokens_of_the_same_numbers(
    format: WeightFormat, mode: str, tmp_path: Path, ties: TieCount
) -> None:
    reference = Reference(with_rounded_experts(tmp_path, format))
    experts: Experts = ((0, (1, 3, 4)), (2, (0, 7)))
    homes: Homes = ((0, "cpu-mlp"), (2, "cpu-mlp"))
    check_parity(tmp_path, reference, mode, homes, ties, precision(tmp_path, format), experts)
