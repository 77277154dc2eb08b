"""Tokens stay those of transformers when MLPs, or experts, come to the accelerator in large steps
and are the CPU's in small ones.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.parity.greedy import Reference, TieCount
from tests.parity.quantized_weights import precision, with_rounded_weights
from tests.parity.test_cpu_mlps import Homes, check_parity
from tests.parity.tiny_models import Case, build, gemma, moe, rotary
from transformers import Gemma2Config, LlamaConfig, MixtralConfig

from tandem.plan.sweep_layers import CpuRule
from tandem.spec.weight_format import WeightFormat

MODELS = (
    Case("llama", rotary(LlamaConfig, 32, 4, 2, 8, num_hidden_layers=6)),
    Case("gemma2", gemma(Gemma2Config, 32, 4, 2, 8, num_hidden_layers=5)),  # norms after branches
    Case("mixtral", rotary(MixtralConfig, 32, 4, 2, 8, num_hidden_layers=6)),
    Case("qwen3moe", moe(32, 4, 2, 8, num_hidden_layers=5, mlp_only_layers=[0])),
)
WIDE = Case(
    "llama-wide", rotary(LlamaConfig, 128, 4, 2, 32, intermediate_size=256, num_hidden_layers=4)
)
# layer 0 of the last model is dense
EVERY: Homes = tuple((layer, "host-mlp") for layer in range(1, 5))
MIXED: Homes = (
    (0, "cpu-mlp"), (1, "host-mlp"), (2, "streamed"), (3, "host"), (4, "host-mlp"), (5, "cpu"),
)  # fmt: skip
STREAMED = (EVERY, ())
BY_STEP = (EVERY, (CpuRule(4, (3, 4)),))  # MLPs of a round stay in the slots
BOTH = (MIXED, (CpuRule(4, (3, 4)),))  # a layer, and another one's MLP
PLACEMENTS = {"streamed": STREAMED, "by-step": BY_STEP, "both": BOTH}
CASES = (
    ("llama", "exact-split", "streamed"),
    ("llama", "threaded-cohorts", "by-step"),
    ("llama", "exact-cohorts", "both"),
    ("llama", "threaded-split", "both"),
    ("gemma2", "exact-split", "by-step"),
    ("mixtral", "in-torch", "by-step"),
    ("mixtral", "exact-split", "both"),
    ("qwen3moe", "chunked", "by-step"),
    ("qwen3moe", "swapped", "streamed"),
    ("qwen3moe", "exact-cohorts", "by-step"),
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("streamed-mlps")


@pytest.fixture(scope="module")
def references(directory: Path) -> dict[str, Reference]:
    return {case.id: Reference(build(case, directory / case.id)) for case in MODELS}


@pytest.fixture(scope="module")
def ties() -> Iterator[TieCount]:
    count = TieCount()
    yield count
    count.check()


@pytest.mark.parametrize(
    ("model", "mode", "placement"), [pytest.param(*case, id="-".join(case)) for case in CASES]
)
def test_greedy_tokens_equal_transformers(
    model: str,
    mode: str,
    placement: str,
    directory: Path,
    references: dict[str, Reference],
    ties: TieCount,
) -> None:
    homes, rules = PLACEMENTS[placement]
    check_parity(directory / model, references[model], mode, homes, ties, rules=rules)


@pytest.mark.parametrize(
    ("format", "mode"),
    [(WeightFormat(8, 128), "exact-split"), (WeightFormat(4, 32), "threaded-cohorts")],
    ids=str,
)
def test_quantized_mlps_give_the_tokens_of_the_same_numbers(
    format: WeightFormat, mode: str, tmp_path: Path, ties: TieCount
) -> None:
    reference = Reference(with_rounded_weights(tmp_path, format, WIDE))
    homes: Homes = tuple((layer, "host-mlp") for layer in range(4))
    weights, rules = precision(tmp_path, format), (CpuRule(4, (2, 3)),)
    check_parity(tmp_path, reference, mode, homes, ties, weights, rules=rules)
