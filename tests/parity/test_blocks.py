"""Tokens stay those of transformers when an engine executes an offline plan."""

from typing import Any

import pytest
from tests.parity.checkpoints import Checkpoints
from tests.parity.generation import PROMPTS, generate
from tests.parity.greedy import TieCount, assert_greedy_parity
from tests.parity.tiny_models import CASES, Case, rotary
from tests.support.blocks import ExecutorKind, block_engine, small_plan
from transformers import LlamaConfig

from tandem.kernels.open_pool import open_pool
from tandem.models.load import load_model
from tandem.plan.sweep_layers import SweepChoice
from tandem.plan.weights import Home

BY_ID = {case.id: case for case in CASES}
FIVE = Case("llama-5-layers", rotary(LlamaConfig, 32, 4, 2, 8, num_hidden_layers=5))
MODELS = (FIVE, BY_ID["opt-gelu-3-layers"], BY_ID["gemma2-window"], BY_ID["qwen3-theta-1e6"])
EXECUTORS: tuple[ExecutorKind, ...] = ("inline", "exact", "threaded")
LEVERS: dict[str, dict[str, Any]] = {
    "resident": {"resident_rows": 2},
    "streamed-kv": {"streamed_rows": 2},
    "on-cpu": {"cpu_rows": 2},
    "recomputed": {"streamed_rows": 2, "recomputed_tokens": 32},
    "mixed": {
        "resident_rows": 1, "streamed_rows": 1, "cpu_rows": 1, "recomputed_tokens": 16,
        "prompts_on_host": True,
    },
    "no-streams": {"resident_rows": 1, "cpu_rows": 1},
    "one-batch": {"batches": 1, "streamed_rows": 2, "cpu_rows": 1},
}  # fmt: skip
NUM_TOKENS = 24


@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize("lever", LEVERS)
@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in MODELS])
def test_greedy_tokens_equal_transformers(
    case: Case, lever: str, kind: ExecutorKind, checkpoints: Checkpoints, ties: TieCount
) -> None:
    directory, reference = checkpoints.get(case)
    layers = case.config().num_hidden_layers
    homes: tuple[Home, ...] = ("streamed", "streamed", *["resident"] * (layers - 2))
    plan = small_plan(homes, **LEVERS[lever])
    model = load_model(directory, pool=open_pool(), layers=SweepChoice.of_plan(plan.weights))
    with block_engine(model, plan, kind, seed=len(lever)) as core:
        made = generate(core, PROMPTS, NUM_TOKENS)
    for prompt, tokens in zip(PROMPTS, made, strict=True):
        assert_greedy_parity(reference, prompt, tokens, ties)
