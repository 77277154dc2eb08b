"""Tokens stay those of transformers when token embeddings are looked up in host memory."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.parity.checkpoints import Checkpoints
from tests.parity.generation import NUM_TOKENS, PROMPTS, generate
from tests.parity.greedy import TieCount, assert_greedy_parity
from tests.parity.modes import MODE_OF
from tests.parity.tiny_models import Case, rotary
from tests.support.engines import model_engine
from tests.support.setups import streamed
from transformers import LlamaConfig

from tandem.engine.building.build import build_engine_core
from tandem.models.load import load_model
from tandem.spec.config import EngineConfig

CASE = Case(
    "llama-untied",
    rotary(LlamaConfig, 32, 4, 2, 8, num_hidden_layers=4, tie_word_embeddings=False),
)


@pytest.mark.parametrize("mode", ["exact-split", "exact-cohorts", "threaded-split"])
def test_greedy_tokens_equal_transformers(
    mode: str, checkpoints: Checkpoints, ties: TieCount
) -> None:
    directory, reference = checkpoints.get(CASE)
    setup = replace(MODE_OF[mode].setup, homes=streamed(0, 1, 2))
    model = load_model(directory, layers=setup.layers, embedding="host")
    assert model.weights.embedding is not None
    with model_engine(model, setup) as engine:
        made = generate(engine.core, PROMPTS, NUM_TOKENS)
        for prompt, tokens in zip(PROMPTS, made, strict=True):
            assert_greedy_parity(reference, prompt, tokens, ties)
        engine.check_idle()


def test_an_engine_accounts_for_them_where_they_lie(
    checkpoints: Checkpoints, ties: TieCount, tmp_path: Path
) -> None:
    directory, reference = checkpoints.get(CASE)
    placement = tmp_path / "placement.json"
    placement.write_text('{"layers": [], "embedding": "host"}')
    config = EngineConfig(
        str(directory), accelerator="emulated:exact,seed=5", gpu_memory="64MiB",
        cpu_memory="64MiB", dtype="float32", block_size=16, max_model_len=256, max_num_seqs=4,
        max_num_batched_tokens=64,
    )  # fmt: skip
    sizes: dict[str, dict[str, int | None]] = {}
    for name, chosen in (("resident", None), ("host", str(placement))):
        core = build_engine_core(replace(config, placement=chosen), check=True)
        made = generate(core, PROMPTS, NUM_TOKENS)
        for prompt, tokens in zip(PROMPTS, made, strict=True):
            assert_greedy_parity(reference, prompt, tokens, ties)
        rows = [row for row in core.stats().memory if row.label == "weights"]
        assert all(row.actual_bytes == row.predicted_bytes for row in rows)
        sizes[name] = {row.location: row.actual_bytes for row in rows}
        core.close()
    spec = load_model(directory).spec
    table = spec.vocab_size * spec.hidden_size * 4
    assert sizes["host"]["host"] == table
    assert sizes["resident"]["device"] == (sizes["host"]["device"] or 0) + table
