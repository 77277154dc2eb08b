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
    Gemma2Config,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    OPTConfig,
    Phi3Config,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
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

LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
DYNAMIC_ROPE = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.5}
YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 32,
}
LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0 + 0.1 * i for i in range(8)],
    "long_factor": [2.0 + i for i in range(8)],
}
WINDOW = 24  # shorter than the longer prompts, longer than a block of 16


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
        "pad_token_id": None,
        "initializer_range": 0.2,
    }
    return lambda: kind(**(settings | options))


def gemma(
    kind: type[PretrainedConfig],
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    **options: Any,
) -> Callable[[], PretrainedConfig]:
    settings = {
        "num_hidden_layers": 3,
        "sliding_window": WINDOW,
        "query_pre_attn_scalar": 20,
        # Tied and scaled embeddings of few dimensions make a model that repeats its input.
        "tie_word_embeddings": False,
        "pad_token_id": None,
    }
    return rotary(kind, hidden, heads, kv_heads, head_dim, **(settings | options))


def moe(
    hidden: int, heads: int, kv_heads: int, head_dim: int, **options: Any
) -> Callable[[], PretrainedConfig]:
    """A Qwen3-MoE; `options` override its configuration."""
    settings = {
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": hidden // 2,
        "norm_topk_prob": True,
    }
    return rotary(Qwen3MoeConfig, hidden, heads, kv_heads, head_dim, **(settings | options))


def opt(hidden: int, heads: int, **options: Any) -> Callable[[], PretrainedConfig]:
    """An OPT; `options` override its configuration."""
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
    Case("llama-linear-rope", rotary(LlamaConfig, 64, 4, 2, 16, rope_parameters=LINEAR_ROPE)),
    Case("llama-dynamic-rope", rotary(LlamaConfig, 64, 4, 2, 16, rope_parameters=DYNAMIC_ROPE)),
    Case("llama-yarn-rope", rotary(LlamaConfig, 64, 4, 2, 16, rope_parameters=YARN_ROPE)),
    Case(
        "qwen3-yarn-mscale-window",
        rotary(
            Qwen3Config,
            64, 4, 2, 32,
            num_hidden_layers=3,
            rope_parameters=YARN_ROPE | {"mscale": 1.2, "mscale_all_dim": 0.7, "truncate": False},
            use_sliding_window=True,
            sliding_window=WINDOW,
            max_window_layers=1,
        ),
    ),
    Case("mistral-window", rotary(MistralConfig, 64, 4, 2, 16, sliding_window=WINDOW)),
    Case("mistral-no-window", rotary(MistralConfig, 48, 6, 2, 12, sliding_window=None)),
    Case("mistral-window-2-gqa4", rotary(MistralConfig, 64, 4, 1, 32, sliding_window=2)),
    Case("qwen2-bias", rotary(Qwen2Config, 64, 4, 2, 16)),
    Case("qwen2-tied-gqa7", rotary(Qwen2Config, 56, 7, 1, 8, tie_word_embeddings=True)),
    Case(
        "qwen2-window-from-layer-1",
        rotary(
            Qwen2Config,
            64, 4, 2, 16,
            num_hidden_layers=3,
            use_sliding_window=True,
            sliding_window=WINDOW,
            max_window_layers=1,
        ),
    ),
    Case("phi3-window", rotary(Phi3Config, 64, 4, 2, 16, sliding_window=WINDOW)),
    Case("phi3-mha-dim24", rotary(Phi3Config, 48, 2, 2, 24)),
    Case(
        "phi3-longrope",
        rotary(
            Phi3Config,
            64, 4, 2, 16,
            rope_parameters=LONG_ROPE,
            original_max_position_embeddings=192,
        ),
    ),
    Case("gemma2-window", gemma(Gemma2Config, 64, 4, 2, 16)),
    Case(
        "gemma2-caps-bias-dim24",
        gemma(
            Gemma2Config,
            48, 8, 2, 24,
            attn_logit_softcapping=2.0,
            final_logit_softcapping=5.0,
            attention_bias=True,
        ),
    ),
    Case(
        "gemma2-no-caps",
        gemma(
            Gemma2Config,
            64, 4, 1, 32,
            attn_logit_softcapping=None,
            final_logit_softcapping=None,
            layer_types=["full_attention"] * 3,
        ),
    ),
    Case(
        "gemma2-tied",
        gemma(
            Gemma2Config,
            64, 4, 2, 16,
            num_hidden_layers=8,
            tie_word_embeddings=True,
            initializer_range=0.06,
            query_pre_attn_scalar=1,
        ),
    ),
    Case("gemma3-window", gemma(Gemma3TextConfig, 64, 4, 2, 16, num_hidden_layers=7)),
    Case(
        "gemma3-tied-gqa7",
        gemma(
            Gemma3TextConfig,
            56, 7, 1, 8,
            num_hidden_layers=8,
            tie_word_embeddings=True,
            initializer_range=0.06,
        ),
    ),
    Case(
        "gemma3-linear-rope",
        gemma(
            Gemma3TextConfig,
            64, 4, 1, 32,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            rope_parameters={
                "full_attention": LINEAR_ROPE,
                "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
            },
            final_logit_softcapping=10.0,
        ),
    ),
    Case("mixtral-window", rotary(MixtralConfig, 64, 4, 2, 16, sliding_window=WINDOW)),
    Case("mixtral-mha-dim24", rotary(MixtralConfig, 48, 4, 4, 24, num_local_experts=5)),
    Case(
        "mixtral-gqa5-one-expert",
        rotary(MixtralConfig, 60, 5, 1, 12, num_local_experts=3, num_experts_per_tok=1),
    ),
    Case(
        "mixtral-gqa7-tied-all-experts",
        rotary(
            MixtralConfig,
            56, 7, 1, 8,
            num_local_experts=4,
            num_experts_per_tok=4,
            tie_word_embeddings=True,
        ),
    ),
    Case(
        "mixtral-gelu-3-layers",
        rotary(MixtralConfig, 40, 4, 2, 10, num_hidden_layers=3, hidden_act="gelu"),
    ),
    Case("mixtral-linear-rope", rotary(MixtralConfig, 64, 4, 1, 32, rope_parameters=LINEAR_ROPE)),
    Case("qwen3moe-mha", moe(64, 4, 4, 16)),
    Case("qwen3moe-gqa4-dim24-plain-weights", moe(64, 8, 2, 24, norm_topk_prob=False)),
    Case("qwen3moe-gqa5-tied", moe(60, 5, 1, 20, tie_word_embeddings=True, num_experts=20)),
    Case("qwen3moe-gqa7-dense-first", moe(56, 7, 1, 16, mlp_only_layers=[0])),
    Case("qwen3moe-every-other", moe(48, 4, 2, 32, num_hidden_layers=4, decoder_sparse_step=2)),
    Case(
        "qwen3moe-window-bias-yarn",
        moe(
            64, 4, 2, 16,
            attention_bias=True,
            use_sliding_window=True,
            sliding_window=WINDOW,
            rope_parameters=YARN_ROPE,
        ),
    ),
    Case("opt-tied", opt(64, 4)),
    Case("opt-untied", opt(48, 3, tie_word_embeddings=False)),
    Case("opt-dim20", opt(60, 3)),
    Case("opt-odd-dim", opt(28, 4)),
    Case("opt-no-bias", opt(48, 2, enable_bias=False)),
    Case("opt-gelu-3-layers", opt(32, 4, activation_function="gelu", num_hidden_layers=3)),
)  # fmt: skip


def build(case: Case, directory: Path) -> PreTrainedModel:
    """Save the case's model to `directory` and return it: float32, evaluation mode.

    Biases and norms, which transformers initializes to 0 and 1, are made random as well, so that
    a forgotten one shows.
    """
    torch.manual_seed(sum(case.id.encode()))
    model = AutoModelForCausalLM.from_config(
        case.config(),
        dtype=torch.float32,
        attn_implementation="eager",
        experts_implementation="eager",
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(directory)
    return model.eval()
