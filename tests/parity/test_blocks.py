"""Tokens stay those of transformers when an engine executes an offline plan."""

from typing import Any

import pytest
from tests.parity.block_models import BLOCK_MODELS, LLAMA
from tests.parity.checkpoints import Checkpoints
from tests.parity.generation import PROMPTS, generate
from tests.parity.greedy import TieCount, assert_greedy_parity
from tests.parity.tiny_models import Case
from tests.support.blocks import ExecutorKind, block_engine, small_plan

from tandem.kernels.open_pool import open_pool
from tandem.models.load import load_model
from tandem.plan.sweep_layers import SweepChoice
from tandem.plan.weights import Home

NUM_TOKENS = 24
HOMES: tuple[Home, ...] = ("streamed", "streamed", "streamed", "streamed")
LEVERS: dict[str, dict[str, Any]] = {
    "resident-weights": {"weights": (), "resident_rows": 2},
    "resident-kv": {"resident_rows": 2},
    "streamed-kv": {"streamed_rows": 2},
    "on-cpu": {"cpu_rows": 2},
    "recomputed": {"streamed_rows": 2, "recomputed_tokens": 32},
    "mixed": {
        "resident_rows": 1, "streamed_rows": 1, "cpu_rows": 1, "recomputed_tokens": 16,
        "prompts_on_host": True,
    },
    "overlapping": {
        "batches": 3, "resident_rows": 1, "streamed_rows": 1, "cpu_rows": 1, "layers_overlap": True,
    },
    "one-batch": {"batches": 1, "streamed_rows": 2, "cpu_rows": 1},
}  # fmt: skip
CASES = [
    *((case, lever, "exact") for case in BLOCK_MODELS for lever in LEVERS),
    *((LLAMA, lever, "inline") for lever in ("resident-weights", "mixed")),
    *((LLAMA, lever, "threaded") for lever in ("streamed-kv", "mixed", "overlapping")),
]


@pytest.mark.parametrize(
    ("case", "lever", "kind"),
    [pytest.param(*each, id="-".join((each[0].id, *each[1:]))) for each in CASES],
)
def test_greedy_tokens_equal_transformers(
    case: Case, lever: str, kind: ExecutorKind, checkpoints: Checkpoints, ties: TieCount
) -> None:
    directory, reference = checkpoints.get(case)
    model_layers = case.config().num_hidden_layers
    levers = {**LEVERS[lever]}
    homes: tuple[Home, ...] = (*HOMES, *["resident"] * (model_layers - 4))
    if "weights" in levers:
        del levers["weights"]
        homes = ("resident",) * model_layers
    plan = small_plan(homes, **levers)
    model = load_model(directory, pool=open_pool(), layers=SweepChoice.of_plan(plan.weights))
    with block_engine(model, plan, kind, seed=len(lever)) as core:
        made = generate(core, PROMPTS, NUM_TOKENS)
    for prompt, tokens in zip(PROMPTS, made, strict=True):
        assert_greedy_parity(reference, prompt, tokens, ties)


def test_prefixes_are_remade_in_parts(
    checkpoints: Checkpoints, ties: TieCount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch's prefixes have more tokens than are made at once; parts are no whole blocks."""
    for module in ("block_ops", "passing_context", "op_memory"):
        monkeypatch.setattr(f"tandem.runtime.{module}.MADE_AT_ONCE", 24)
    test_greedy_tokens_equal_transformers(LLAMA, "recomputed", "exact", checkpoints, ties)
