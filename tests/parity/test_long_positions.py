"""Sequences beyond what the model was trained for: greedy tokens are those of transformers.

LongRoPE and dynamic scaling rotate all of an engine's sequences as one of `max_model_len` tokens.
transformers does so with LongRoPE for every prompt beyond the original positions; with dynamic
scaling once it has seen a sequence of that length, until one comes that is shorter than the
original positions.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from tests.parity.generation import generate
from tests.parity.greedy import Reference, TieCount, assert_greedy_parity
from tests.parity.modes import MODES
from tests.parity.tiny_models import VOCAB_SIZE, YARN_ROPE, Case, build, rotary
from tests.support.engines import model_engine
from transformers import LlamaConfig, Phi3Config, PreTrainedModel, Qwen3Config

from tandem.kernels.open_pool import open_pool
from tandem.models.load import load_model
from tandem.spec.dtype import DType

ORIGINAL, LONGEST = 64, 256
NUM_TOKENS = 48
PROMPTS = tuple(
    tuple((11 * length + 17 * i * i + 3 * i) % VOCAB_SIZE for i in range(length))
    for length in (70, 207)
)
BY_ID = {mode.id: mode for mode in MODES}


def scaled(kind: str, **values: Any) -> dict[str, Any]:
    return {"rope_type": kind, "rope_theta": 10000.0, "factor": LONGEST / ORIGINAL, **values}


CASES = (
    Case(
        "llama-linear",
        rotary(
            LlamaConfig, 64, 4, 2, 16,
            max_position_embeddings=ORIGINAL,
            rope_parameters=scaled("linear"),
        ),
    ),
    Case(  # as Qwen's recipe has it: more positions than the original ones, which the factor is of
        "qwen3-yarn",
        rotary(
            Qwen3Config, 64, 4, 2, 16,
            max_position_embeddings=ORIGINAL + 16,
            rope_parameters=YARN_ROPE
            | {"factor": LONGEST / ORIGINAL, "original_max_position_embeddings": ORIGINAL},
        ),
    ),
    Case(
        "llama-dynamic",
        rotary(
            LlamaConfig, 64, 4, 2, 16,
            max_position_embeddings=ORIGINAL,
            rope_parameters=scaled("dynamic"),
        ),
    ),
    Case(
        "phi3-longrope",
        rotary(
            Phi3Config, 64, 4, 2, 16,
            max_position_embeddings=LONGEST,
            original_max_position_embeddings=ORIGINAL,
            rope_parameters={
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "short_factor": [1.0 + 0.1 * i for i in range(8)],
                "long_factor": [2.0 + i for i in range(8)],
            },
        ),
    ),
)  # fmt: skip


def rotated_for(model: PreTrainedModel, length: int) -> PreTrainedModel:
    """The model after a sequence of `length` tokens."""
    rotary = cast(Any, model).model.rotary_emb
    rotary(torch.zeros(1), torch.tensor([[length - 1]]))
    return model


@pytest.mark.parametrize("mode", ["none-batched", "split", "in-torch"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_tokens_beyond_the_original_positions_are_those_of_transformers(
    case: Case, mode: str, tmp_path: Path, ties: TieCount
) -> None:
    chosen = BY_ID[mode]
    reference = Reference(rotated_for(build(case, tmp_path), LONGEST))
    pool = open_pool() if chosen.compiled else None
    model = load_model(tmp_path, DType.FLOAT32, pool=pool, max_model_len=LONGEST)
    assert model.spec.max_positions == LONGEST
    with model_engine(model, replace(chosen.setup, max_model_len=LONGEST)) as engine:
        made = generate(engine.core, PROMPTS, NUM_TOKENS)
    for prompt, tokens in zip(PROMPTS, made, strict=True):
        assert_greedy_parity(reference, prompt, tokens, ties)


@pytest.mark.parametrize("case", CASES[2:], ids=lambda case: case.id)
def test_up_to_the_original_positions_sequences_are_rotated_as_in_training(
    case: Case, tmp_path: Path, ties: TieCount
) -> None:
    reference = Reference(build(case, tmp_path))
    prompts = tuple(prompt[:20] for prompt in PROMPTS)
    with model_engine(load_model(tmp_path, DType.FLOAT32), BY_ID["batched"].setup) as engine:
        made = generate(engine.core, prompts, ORIGINAL - 20)
    for prompt, tokens in zip(prompts, made, strict=True):
        assert_greedy_parity(reference, prompt, tokens, ties)
