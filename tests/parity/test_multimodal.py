"""The text model inside a checkpoint that can see: its weights are found, the others left alone."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.parity.dense_attention import forward
from tests.parity.tiny_models import MAX_POSITIONS, VOCAB_SIZE, WINDOW, Case, build
from tests.unit.models.configs import GEMMA3_4B, write
from transformers import Gemma3Config

from tandem.kernels.open_pool import open_pool
from tandem.models.config import read_model_spec
from tandem.models.load import load_model


def tiny_config() -> Gemma3Config:
    text = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 64,
        "intermediate_size": 72,
        "num_hidden_layers": 7,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "sliding_window": WINDOW,
        "max_position_embeddings": MAX_POSITIONS,
        "query_pre_attn_scalar": 20,
        "pad_token_id": None,
        "eos_token_id": 3,
    }
    vision = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    }
    tokens = {"image_token_index": 96, "boi_token_index": 95, "eoi_token_index": 94}
    settings: dict[str, Any] = tokens | {"mm_tokens_per_image": 1, "eos_token_id": [3, 5]}
    return Gemma3Config(text_config=text, vision_config=vision, **settings)


@pytest.mark.parametrize("compiled", [False, True])
def test_logits_of_text_equal_transformers(compiled: bool, tmp_path: Path) -> None:
    reference = build(Case("gemma3-that-sees", tiny_config), tmp_path)
    model = load_model(tmp_path, pool=open_pool() if compiled else None)
    token_ids = torch.randint(90, (70,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = reference(token_ids[None]).logits[0]
    assert expected.std() > 0.1
    torch.testing.assert_close(forward(model, token_ids), expected, rtol=0, atol=1e-4)
    assert model.spec.eos_token_ids == (3, 5)


def test_what_published_files_leave_out_is_known(tmp_path: Path) -> None:
    left_out = ("architectures", "num_attention_heads", "num_key_value_heads", "vocab_size")
    text = {k: v for k, v in GEMMA3_4B.items() if k not in left_out}
    nested = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "torch_dtype": text.pop("torch_dtype"),
        "text_config": text,
        "vision_config": {"hidden_size": 1152},
    }
    flat = read_model_spec(write(tmp_path, GEMMA3_4B))
    spec = read_model_spec(write(tmp_path, nested))
    assert spec.architecture == "gemma3_multimodal"
    for name in ("layer_windows", "ropes", "num_kv_heads", "head_dim", "vocab_size", "dtype"):
        assert getattr(spec, name) == getattr(flat, name)
