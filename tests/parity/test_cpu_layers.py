"""Tokens stay those of transformers when the CPU computes layers beside the accelerator."""

from dataclasses import replace

import pytest
from tests.parity.checkpoints import Checkpoints, Homes, check_placed
from tests.parity.generation import NUM_TOKENS
from tests.parity.greedy import TieCount
from tests.parity.modes import MODE_OF
from tests.parity.tiny_models import Case, rotary
from transformers import LlamaConfig

from tandem.plan.sweep_layers import CpuRule
from tandem.plan.weights import Home

CASE = Case("llama-6-layers", rotary(LlamaConfig, 32, 4, 2, 8, num_hidden_layers=6))
CPU: Home = "cpu"
EVERY: Homes = tuple((layer, CPU) for layer in range(6))
ENDS: Homes = ((0, "cpu"), (1, "cpu"), (3, "cpu"), (5, "cpu"))
MIXED: Homes = ((0, "streamed"), (1, "cpu"), (2, "streamed"), (4, "cpu"), (5, "cpu"))
BY_STEP: Homes = ((0, "host"), (1, "host"), (2, "host"), (3, "host"), (4, "cpu"))
RULES = (CpuRule(1, (0, 1, 2, 3)), CpuRule(3, (2, 3)), CpuRule(9, (0, 1, 2, 3)))
PLACEMENTS: dict[str, tuple[Homes, tuple[CpuRule, ...]]] = {
    "every": (EVERY, ()),
    "ends": (ENDS, ()),
    "mixed": (MIXED, ()),
    "by-step": (BY_STEP, RULES),
}
MODES_OF = {
    "every": ("in-torch", "split", "exact-split", "threaded-split"),
    "ends": ("host-lane", "chunked", "exact-cohorts"),
    "mixed": ("exact-split", "swapped", "threaded-cohorts"),
    "by-step": ("batched", "exact-plain-loop", "exact-swapped", "threaded-split", "cohorts-split"),
}
CASES = [(mode, placement) for placement, modes in MODES_OF.items() for mode in modes]


@pytest.mark.parametrize(
    ("name", "placement"), [pytest.param(m, p, id=f"{m}-{p}") for m, p in CASES]
)
def test_greedy_tokens_equal_transformers(
    name: str, placement: str, checkpoints: Checkpoints, ties: TieCount
) -> None:
    mode = MODE_OF[name]
    homes, rules = PLACEMENTS[placement]
    setup = replace(mode.setup, homes=homes, cpu_rules=rules)
    check_placed(checkpoints.get(CASE), mode, setup, ties, rounds=(NUM_TOKENS, NUM_TOKENS))
