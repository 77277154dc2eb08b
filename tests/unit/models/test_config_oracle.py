"""`config.json` means what it means to transformers: defaults, nulls, windows, rotations."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from tests.unit.models import configs
from tests.unit.models.configs import (
    GEMMA2_9B,
    GEMMA3_4B,
    MISTRAL_7B,
    MIXTRAL_8X7B,
    PHI3_MINI,
    QWEN2_7B,
    QWEN3_30B_A3B,
    write,
)
from transformers import AutoConfig, AutoModelForCausalLM

from tandem.models.config import read_model_spec
from tandem.models.rotary import inverse_frequencies
from tandem.spec.dtype import DType
from tandem.spec.model import ExpertSpec, ModelSpec
from tandem.spec.parameters import kv_bytes_per_token, num_parameters

SMALL = {
    "vocab_size": 50,
    "hidden_size": 64,
    "intermediate_size": 32,
    "num_hidden_layers": 7,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": None,
}
LLAMA = configs.LLAMA | {"model_type": "llama"}
QWEN3 = configs.QWEN3 | {"model_type": "qwen3"}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
LONG = {
    "type": "longrope",
    "short_factor": [1.0 + i / 9 for i in range(8)],
    "long_factor": [2.0 + i for i in range(8)],
}
ABSENT = object()


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (MISTRAL_7B, 7_241_732_096),
        (QWEN2_7B, 7_615_616_512),
        (PHI3_MINI, 3_821_079_552),
        (GEMMA2_9B, 9_241_705_984),
        (GEMMA3_4B, 3_880_263_168),
        (MIXTRAL_8X7B, 46_702_792_704),
        (QWEN3_30B_A3B, 30_532_122_624),
    ],
)
def test_published_shapes_weigh_what_transformers_makes_of_them(
    config: dict[str, Any], parameters: int, tmp_path: Path
) -> None:
    spec = read_model_spec(write(tmp_path, config))
    theirs = AutoConfig.from_pretrained(tmp_path)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(theirs)
    assert num_parameters(spec) == sum(p.numel() for p in model.parameters()) == parameters
    per_layer = model.model.layers[0].self_attn
    keys = theirs.num_key_value_heads * per_layer.head_dim
    assert kv_bytes_per_token(spec, DType.BFLOAT16) == 2 * 2 * keys * theirs.num_hidden_layers


@pytest.mark.parametrize(
    ("config", "change"),
    [
        (LLAMA, {}),
        (LLAMA, {"rope_scaling": {"type": "linear", "factor": 3.0}}),
        (LLAMA, {"rope_scaling": {"type": "dynamic", "factor": 3.0}}),
        (LLAMA, {"rope_scaling": YARN}),
        (
            LLAMA,
            {"rope_scaling": YARN | {"attention_factor": 1.7, "beta_fast": 20, "beta_slow": 2}},
        ),
        (LLAMA, {"rope_scaling": YARN | {"mscale": 0.8, "mscale_all_dim": 1.3}}),
        (LLAMA, {"rope_scaling": YARN | {"truncate": False}}),
        (LLAMA, {"rope_scaling": YARN, "original_max_position_embeddings": 512}),
        (LLAMA, {"rope_scaling": configs.LLAMA3_SCALING | {"rope_type": "llama3"}}),
        (LLAMA, {"rope_parameters": YARN | {"rope_theta": 77.0}, "rope_theta": ABSENT}),
        (LLAMA, {"rope_theta": ABSENT, "num_key_value_heads": ABSENT}),
        (MISTRAL_7B, {}),
        (MISTRAL_7B, {"sliding_window": None}),
        (MISTRAL_7B, {"sliding_window": ABSENT, "rms_norm_eps": ABSENT}),
        (MISTRAL_7B, {"head_dim": 10, "max_position_embeddings": ABSENT}),
        (
            MISTRAL_7B,
            {"hidden_size": 320, "num_attention_heads": 32, "num_key_value_heads": ABSENT},
        ),
        (QWEN2_7B, {}),
        (QWEN2_7B, {"use_sliding_window": ABSENT, "tie_word_embeddings": True}),
        (QWEN2_7B, {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 3}),
        (QWEN2_7B, {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 0}),
        (QWEN2_7B, {"use_sliding_window": True, "sliding_window": ABSENT, "max_window_layers": 5}),
        (QWEN2_7B, {"use_sliding_window": True, "max_window_layers": ABSENT}),
        (QWEN2_7B, {"use_sliding_window": True, "sliding_window": None}),
        (
            QWEN2_7B,
            {
                "use_sliding_window": True,
                "layer_types": ["sliding_attention", *["full_attention"] * 6],
            },
        ),
        (QWEN3, {"head_dim": ABSENT}),
        (QWEN3, {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 2}),
        (MIXTRAL_8X7B, {}),
        (MIXTRAL_8X7B, {"rope_theta": ABSENT, "rms_norm_eps": ABSENT, "sliding_window": 9}),
        (MIXTRAL_8X7B, {"num_local_experts": ABSENT, "num_experts_per_tok": ABSENT}),
        (
            MIXTRAL_8X7B,
            {"num_local_experts": 3, "num_key_value_heads": ABSENT, "num_attention_heads": 8},
        ),
        (QWEN3_30B_A3B, {"num_experts": 9}),
        (QWEN3_30B_A3B, {"head_dim": ABSENT, "moe_intermediate_size": ABSENT}),
        (QWEN3_30B_A3B, {"num_experts": ABSENT, "num_local_experts": 10}),
        (QWEN3_30B_A3B, {"num_experts": 9, "decoder_sparse_step": 3, "mlp_only_layers": [2, 6]}),
        (QWEN3_30B_A3B, {"num_experts": 9, "norm_topk_prob": ABSENT, "rope_theta": ABSENT}),
        (QWEN3_30B_A3B, {"num_experts": 9, "use_sliding_window": True, "sliding_window": 5}),
        (QWEN3_30B_A3B, {"num_experts": 9, "use_sliding_window": True, "sliding_window": ABSENT}),
        (PHI3_MINI, {"sliding_window": ABSENT}),
        (PHI3_MINI, {"rope_scaling": LONG, "max_position_embeddings": 65536}),
        (PHI3_MINI, {"rope_scaling": LONG | {"type": "yarn"}, "max_position_embeddings": 8192}),
        (PHI3_MINI, {"rope_scaling": LONG, "original_max_position_embeddings": ABSENT}),
        (GEMMA2_9B, {}),
        (GEMMA2_9B, {"attn_logit_softcapping": ABSENT, "final_logit_softcapping": ABSENT}),
        (GEMMA2_9B, {"attn_logit_softcapping": None, "final_logit_softcapping": None}),
        (GEMMA2_9B, {"head_dim": ABSENT, "sliding_window": ABSENT, "hidden_activation": ABSENT}),
        (GEMMA2_9B, {"query_pre_attn_scalar": 7, "attention_bias": True}),
        (GEMMA2_9B, {"tie_word_embeddings": False, "layer_types": ["full_attention"] * 7}),
        (GEMMA3_4B, {}),
        (GEMMA3_4B, {"rope_scaling": None, "rope_theta": 5e5, "rope_local_base_freq": 300.0}),
        (GEMMA3_4B, {"sliding_window_pattern": 3, "sliding_window": ABSENT}),
        (GEMMA3_4B, {"final_logit_softcapping": 12.0}),
        (
            GEMMA3_4B,
            {
                "rope_scaling": ABSENT,
                "rope_parameters": {
                    "full_attention": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 9e4},
                    "sliding_attention": {"rope_type": "linear", "factor": 3.0},
                },
            },
        ),
    ],
)
def test_facts_are_those_of_transformers(
    config: dict[str, Any], change: dict[str, Any], tmp_path: Path
) -> None:
    values = {k: v for k, v in (config | SMALL | change).items() if v is not ABSENT}
    (tmp_path / "config.json").write_text(json.dumps(values))
    spec = read_model_spec(tmp_path)
    theirs = AutoConfig.from_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_config(theirs)

    assert num_parameters(spec) == sum(p.numel() for p in model.parameters())
    assert spec.num_kv_heads == theirs.num_key_value_heads
    assert spec.norm_eps == theirs.rms_norm_eps
    assert spec.tie_embeddings == theirs.tie_word_embeddings
    assert spec.logit_soft_cap == (getattr(theirs, "final_logit_softcapping", None) or 0.0)
    attention = [layer.self_attn for layer in cast(Any, model).model.layers]
    assert spec.attention_soft_cap == (getattr(attention[0], "attn_logit_softcapping", None) or 0.0)
    assert spec.attention_scale == attention[0].scaling
    assert spec.head_dim == attention[0].head_dim
    assert spec.layer_windows == tuple(window_of(theirs, layer) for layer in attention)
    check_ropes(spec, cast(Any, model).model.rotary_emb)
    for index, layer in enumerate(cast(Any, model).model.layers):
        check_experts(spec.routed_experts(index), layer.mlp)


def check_experts(ours: ExpertSpec | None, mlp: Any) -> None:
    """As many experts of the same size, chosen and weighted alike; or none."""
    router: Any = getattr(mlp, "gate", None)
    if not hasattr(router, "top_k"):
        assert ours is None
        return
    renormalized = getattr(router, "norm_topk_prob", True)  # Mixtral always does
    size = mlp.experts.intermediate_dim
    assert ours is not None
    assert ours == ExpertSpec(
        router.num_experts, router.top_k, size, renormalized, ours.dense_layers
    )


def window_of(config: Any, attention: Any) -> int:
    """Mistral and Phi-3 have one window in the configuration, the others one in each layer."""
    if hasattr(config, "layer_types"):
        return attention.sliding_window or 0
    return getattr(config, "sliding_window", None) or 0


def check_ropes(spec: ModelSpec, rotary: Any) -> None:
    """The same frequencies to the last bit, and amplitudes."""
    kinds = ("full_attention_", "sliding_attention_") if spec.local_rope else ("",)
    for rope, kind in zip(spec.ropes, kinds, strict=True):
        expected = getattr(rotary, f"{kind}inv_freq")
        assert torch.equal(inverse_frequencies(rope, spec.head_dim), expected)
        assert rope.amplitude == pytest.approx(getattr(rotary, f"{kind}attention_scaling"))
