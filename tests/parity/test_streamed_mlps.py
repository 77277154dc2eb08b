"""Tokens stay those of transformers when MLPs, or experts, come to the accelerator in large steps
and are the CPU's in small ones.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.parity.checkpoints import Checkpoints, Homes, check_placed
from tests.parity.greedy import Reference, TieCount
from tests.parity.modes import MODE_OF
from tests.parity.quantized_weights import precision, with_rounded_weights
from tests.parity.tiny_models import Case, gemma, moe, rotary
from transformers import Gemma2Config, LlamaConfig, MixtralConfig

from tandem.plan.sweep_layers import CpuRule
from tandem.spec.weight_format import WeightFormat

MODELS = (
    Case("llama", rotary(LlamaConfig, 32, 4, 2, 8, num_hidden_layers=6)),
    Case("gemma2", gemma(Gemma2Config, 32, 4, 2, 8, num_hidden_layers=5)),  # norms after branches
    Case("mixtral", rotary(MixtralConfig, 32, 4, 2, 8, num_hidden_layers=6)),
    Case("qwen3moe", moe(32, 4, 2, 8, num_hidden_layers=5, mlp_only_layers=[0])),
)
CASE_OF = {case.id: case for case in MODELS}
WIDE = Case(
    "llama-wide", rotary(LlamaConfig, 128, 4, 2, 32, intermediate_size=256, num_hidden_layers=4)
)
# layer 0 of the last model is dense
EVERY: Homes = tuple((layer, "host-mlp") for layer in range(1, 5))
MIXED: Homes = (
    (0, "cpu-mlp"), (1, "host-mlp"), (2, "streamed"), (3, "host"), (4, "host-mlp"), (5, "cpu"),
)  # fmt: skip
STREAMED = (EVERY, ())
BY_STEP = (EVERY, (CpuRule(4, (3, 4)),))  # the other MLPs stay in the slots
ODD = (EVERY[:3], (CpuRule(1, (3,)),))
BOTH = (MIXED, (CpuRule(4, (3, 4)),))  # a layer, and another one's MLP
PLACEMENTS = {"streamed": STREAMED, "by-step": BY_STEP, "both": BOTH, "odd": ODD}
CASES = (
    ("llama", "exact-split", "streamed"),
    ("llama", "threaded-cohorts", "by-step"),
    ("llama", "exact-cohorts", "both"),
    ("llama", "threaded-split", "both"),
    ("gemma2", "exact-split", "by-step"),
    ("gemma2", "threaded-split", "odd"),
    ("mixtral", "in-torch", "by-step"),
    ("mixtral", "exact-split", "both"),
    ("qwen3moe", "chunked", "by-step"),
    ("qwen3moe", "swapped", "streamed"),
    ("qwen3moe", "exact-cohorts", "by-step"),
)


@pytest.mark.parametrize(
    ("model", "mode", "placement"), [pytest.param(*case, id="-".join(case)) for case in CASES]
)
def test_greedy_tokens_equal_transformers(
    model: str, mode: str, placement: str, checkpoints: Checkpoints, ties: TieCount
) -> None:
    homes, rules = PLACEMENTS[placement]
    setup = replace(MODE_OF[mode].setup, homes=homes, cpu_rules=rules)
    check_placed(checkpoints.get(CASE_OF[model]), MODE_OF[mode], setup, ties)


@pytest.mark.parametrize(
    ("format", "mode"),
    [(WeightFormat(8, 128), "exact-split"), (WeightFormat(4, 32), "threaded-cohorts")],
    ids=str,
)
def test_quantized_mlps_give_the_tokens_of_the_same_numbers(
    format: WeightFormat, mode: str, tmp_path: Path, ties: TieCount
) -> None:
    checkpoint = tmp_path, Reference(with_rounded_weights(tmp_path, format, WIDE))
    homes: Homes = tuple((layer, "host-mlp") for layer in range(4))
    setup = replace(MODE_OF[mode].setup, homes=homes, cpu_rules=(CpuRule(4, (2, 3)),))
    check_placed(checkpoint, MODE_OF[mode], setup, ties, weights=precision(tmp_path, format))
