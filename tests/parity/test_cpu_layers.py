"""Tokens stay those of transformers when the CPU computes layers beside the accelerator."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.parity.greedy import Reference, TieCount, assert_greedy_parity
from tests.parity.modes import MODES
from tests.parity.test_engine import PROMPTS, generate
from tests.parity.tiny_models import Case, build, rotary
from tests.support.engines import model_engine
from tests.support.setups import Setup
from transformers import LlamaConfig

from tandem.kernels.open_pool import open_pool
from tandem.models.load import load_model
from tandem.plan.sweep_layers import CpuRule
from tandem.plan.weights import Home

CASE = Case("llama-6-layers", rotary(LlamaConfig, 32, 4, 2, 8, num_hidden_layers=6))
Homes = tuple[tuple[int, Home], ...]
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
BY_ID = {mode.id: mode for mode in MODES}
CASES = [(mode, placement) for placement, modes in MODES_OF.items() for mode in modes]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cpu-layers")


@pytest.fixture(scope="module")
def reference(directory: Path) -> Reference:
    return Reference(build(CASE, directory))


@pytest.fixture(scope="module")
def ties() -> Iterator[TieCount]:
    count = TieCount()
    yield count
    count.check()


@pytest.mark.parametrize(
    ("name", "placement"), [pytest.param(m, p, id=f"{m}-{p}") for m, p in CASES]
)
def test_greedy_tokens_equal_transformers(
    name: str, placement: str, directory: Path, reference: Reference, ties: TieCount
) -> None:
    mode = BY_ID[name]
    homes, rules = PLACEMENTS[placement]
    setup: Setup = replace(mode.setup, homes=homes, cpu_rules=rules)
    pool = open_pool() if mode.compiled else None
    model = load_model(directory, pool=pool, layers=setup.layers)
    with model_engine(model, setup) as engine:
        for _ in range(2):  # slots are left as the next sweep expects them
            made = generate(engine.core, PROMPTS)
            for prompt, tokens in zip(PROMPTS, made, strict=True):
                assert_greedy_parity(reference, prompt, tokens, ties)
        engine.check_idle()
        if name == "exact-cohorts":  # which joins fail is drawn, and drawn anew by other programs
            assert engine.stats.cohort_joins > 0
        else:
            assert mode.happened(engine.stats)
