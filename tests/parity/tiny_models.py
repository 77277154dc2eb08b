"""Tiny random models in Hugging Face layout: the cases of every parity test.

To cover a new architecture, add its cases to `CASES`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    OPTConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen3Config,
)

VOCAB_SIZE = 97
MAX_POSITIONS = 256

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 50000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


@dataclass(frozen=True, slots=True)
class Case:
    """One tiny configuration; its weights are random but always the same."""

    id: str
    config: Callable[[], PretrainedConfig]


def rotary(
    kind: type[PretrainedConfig],
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    **options: Any,
) -> Callable[[], PretrainedConfig]:
    """A model with rotary positions; `options` override its configuration."""
    settings = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden + 8,
        "num_hidden_layers": 2,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "max_position_embeddings": MAX_POSITIONS,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "initializer_range": 0.2,
    }
    return lambda: kind(**(settings | options))


def _opt(hidden: int, heads: int, **options: Any) -> Callable[[], PretrainedConfig]:
    settings = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": hidden,
        "word_embed_proj_dim": hidden,
        "ffn_dim": 3 * hidden,
        "num_hidden_layers": 2,
        "num_attention_heads": heads,
        "max_position_embeddings": MAX_POSITIONS,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "init_std": 0.2,
        "dropout": 0.0,
    }
    return lambda: OPTConfig(**(settings | options))


CASES: tuple[Case, ...] = (
    Case("llama-mha", rotary(LlamaConfig, 64, 4, 4, 16, rms_norm_eps=1e-2)),
    Case("llama-gqa4-dim20", rotary(LlamaConfig, 48, 8, 2, 20)),
    Case("llama-gqa5-tied", rotary(LlamaConfig, 60, 5, 1, 24, tie_word_embeddings=True)),
    Case("llama-gqa7-bias", rotary(LlamaConfig, 42, 7, 1, 12, attention_bias=True, mlp_bias=True)),
    Case("llama-31-rope", rotary(LlamaConfig, 64, 4, 1, 32, rope_parameters=LLAMA3_ROPE)),
    Case(
        "llama-3-layers-gelu",
        rotary(LlamaConfig, 40, 4, 2, 10, num_hidden_layers=3, hidden_act="gelu"),
    ),
    Case(
        "llama-32-tied-rope",
        rotary(LlamaConfig, 64, 8, 2, 8, rope_parameters=LLAMA3_ROPE, tie_word_embeddings=True),
    ),
    Case("qwen3-mha", rotary(Qwen3Config, 64, 4, 4, 16, rms_norm_eps=1e-2)),
    Case("qwen3-gqa4-dim24", rotary(Qwen3Config, 64, 8, 2, 24)),
    Case("qwen3-gqa5-tied", rotary(Qwen3Config, 60, 5, 1, 20, tie_word_embeddings=True)),
    Case("qwen3-gqa7", rotary(Qwen3Config, 56, 7, 1, 16)),
    Case("qwen3-bias", rotary(Qwen3Config, 48, 4, 2, 32, attention_bias=True)),
    Case(
        "qwen3-theta-1e6",
        rotary(
            Qwen3Config,
            64, 2, 1, 64,
            num_hidden_layers=3,
            rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        ),
    ),
    Case("opt-tied", _opt(64, 4)),
    Case("opt-untied", _opt(48, 3, tie_word_embeddings=False)),
    Case("opt-dim20", _opt(60, 3)),
    Case("opt-odd-dim", _opt(28, 4)),
    Case("opt-no-bias", _opt(48, 2, enable_bias=False)),
    Case("opt-gelu-3-layers", _opt(32, 4, activation_function="gelu", num_hidden_layers=3)),
)  # fmt: skip


def build(case: Case, directory: Path) -> PreTrainedModel:
    """Save the case's model to `directory` and return it: float32, evaluation mode.

    Biases and norms, which transformers initializes to 0 and 1, are made random as well, so that
    a forgotten one shows.
    """
    torch.manual_seed(sum(case.id.encode()))
    model = AutoModelForCausalLM.from_config(
        case.config(), dtype=torch.float32, attn_implementation="eager"
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(directory)
    return model.eval()
