"""Tokens stay those of transformers when MLPs, or experts, are the CPU's and the rest is not."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.parity.checkpoints import Checkpoints, Homes, check_placed
from tests.parity.greedy import Reference, TieCount
from tests.parity.modes import MODE_OF
from tests.parity.quantized_weights import precision, with_rounded_weights
from tests.parity.tiny_models import Case, gemma, moe, rotary
from transformers import Gemma2Config, LlamaConfig, MixtralConfig

from tandem.spec.weight_format import WeightFormat

MODELS = (
    Case("llama", rotary(LlamaConfig, 32, 4, 2, 8, num_hidden_layers=6)),
    Case("gemma2", gemma(Gemma2Config, 32, 4, 2, 8, num_hidden_layers=4)),  # norms after branches
    Case("mixtral", rotary(MixtralConfig, 32, 4, 2, 8, num_hidden_layers=4)),
    Case("qwen3moe", moe(32, 4, 2, 8, num_hidden_layers=5, mlp_only_layers=[0])),
)
PLACEMENTS: dict[str, Homes] = {
    "every": tuple((layer, "cpu-mlp") for layer in range(4)),
    "mixed": ((0, "cpu-mlp"), (1, "streamed"), (2, "cpu"), (3, "streamed")),
    "after-cpu": ((1, "cpu"), (2, "cpu-mlp"), (3, "cpu")),
}
RUNS = {
    "llama": (
        ("host-lane", "every"), ("exact-split", "every"), ("threaded-cohorts", "every"),
        ("swapped", "mixed"), ("exact-cohorts", "mixed"), ("cohorts-split", "after-cpu"),
    ),
    "gemma2": (("exact-split", "every"),),
    "mixtral": (
        ("in-torch", "every"), ("exact-cohorts", "mixed"), ("threaded-split", "after-cpu"),
    ),
    "qwen3moe": (
        ("chunked", "every"), ("exact-split", "every"), ("threaded-cohorts", "after-cpu"),
    ),
}  # fmt: skip
CASES = [(case, *run) for case in MODELS for run in RUNS[case.id]]


@pytest.mark.parametrize(
    ("case", "name", "placement"), [pytest.param(*c, id=f"{c[0].id}-{c[1]}-{c[2]}") for c in CASES]
)
def test_greedy_tokens_equal_transformers(
    case: Case, name: str, placement: str, checkpoints: Checkpoints, ties: TieCount
) -> None:
    mode, homes = MODE_OF[name], PLACEMENTS[placement]
    if case.id == "qwen3moe":  # whole layers in host memory are all of those with experts
        homes = tuple(each for each in homes if each[0] or each[1] == "cpu-mlp")
    check_placed(checkpoints.get(case), mode, replace(mode.setup, homes=homes), ties)


@pytest.mark.parametrize(
    ("format", "name"),
    [(WeightFormat(8, 128), "exact-split"), (WeightFormat(4, 32), "threaded-cohorts")],
    ids=str,
)
def test_quantized_mlps_give_the_tokens_of_the_same_numbers(
    format: WeightFormat, name: str, tmp_path: Path, ties: TieCount
) -> None:
    checkpoint = tmp_path, Reference(with_rounded_weights(tmp_path, format))
    mode = MODE_OF[name]
    setup = replace(mode.setup, homes=((0, "cpu-mlp"), (2, "cpu-mlp")))
    check_placed(checkpoint, mode, setup, ties, weights=precision(tmp_path, format))
