"""Small configurations of any architecture, drawn at random, give the logits of transformers."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.parity.dense_attention import forward
from tests.parity.tiny_models import (
    DYNAMIC_ROPE,
    LINEAR_ROPE,
    LLAMA3_ROPE,
    VOCAB_SIZE,
    YARN_ROPE,
    Case,
    build,
    gemma,
    moe,
    rotary,
)
from transformers import (
    Gemma2Config,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

from tandem.kernels.open_pool import open_pool
from tandem.models.load import load_model

WINDOWS = st.sampled_from([None, 2, 7, 30])
CAPS = st.sampled_from([None, 1.5, 20.0])
TYPES = st.sampled_from(["full_attention", "sliding_attention"])
ROPES = st.sampled_from([{"rope_type": "default", "rope_theta": 300.0}, LINEAR_ROPE, YARN_ROPE])
FLAT_ROPES = st.one_of(ROPES, st.sampled_from([LLAMA3_ROPE, DYNAMIC_ROPE]))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kv_heads, group = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 4, 5, 7]))
    heads, head_dim = kv_heads * group, draw(st.sampled_from([8, 12, 16, 32]))
    shape = (heads * draw(st.sampled_from([8, 12])), heads, kv_heads, head_dim)
    layers = draw(st.integers(1, 4))
    options: dict[str, Any] = {
        "num_hidden_layers": layers,
        "tie_word_embeddings": draw(st.booleans()),
        "rms_norm_eps": draw(st.sampled_from([1e-6, 1e-2])),
    }
    kind = draw(
        st.sampled_from([LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config, Phi3Config])
        | st.sampled_from([Gemma2Config, Gemma3TextConfig])
        | st.sampled_from([MixtralConfig, Qwen3MoeConfig])
    )
    types = [draw(TYPES) for _ in range(layers)]
    if kind in (Gemma2Config, Gemma3TextConfig):
        options |= {
            "layer_types": types,
            "sliding_window": draw(st.sampled_from([2, 7, 30])),
            "attention_bias": draw(st.booleans()),
            "final_logit_softcapping": draw(CAPS),
            "query_pre_attn_scalar": draw(st.sampled_from([4, 50])),
            "hidden_activation": draw(st.sampled_from(["gelu_pytorch_tanh", "silu"])),
        }
        if kind is Gemma2Config:
            options |= {"attn_logit_softcapping": draw(CAPS), "rope_parameters": draw(FLAT_ROPES)}
        else:
            by_type = {"full_attention": draw(ROPES), "sliding_attention": draw(ROPES)}
            options["rope_parameters"] = by_type
        return Case("drawn", gemma(kind, *shape, **options))
    if kind in (MixtralConfig, Qwen3MoeConfig):
        count = draw(st.integers(1, 9))
        options |= {
            "num_local_experts" if kind is MixtralConfig else "num_experts": count,
            "num_experts_per_tok": draw(st.integers(1, count)),
        }
    if kind is Qwen3MoeConfig:
        options |= {
            "norm_topk_prob": draw(st.booleans()),
            "moe_intermediate_size": draw(st.sampled_from([4, 33])),
            "mlp_only_layers": draw(st.lists(st.integers(0, layers - 2), max_size=2))
            if layers > 1
            else [],
        }
    if kind in (MistralConfig, MixtralConfig, Phi3Config):
        options["sliding_window"] = draw(WINDOWS)
    if kind in (Qwen2Config, Qwen3Config):
        window = draw(st.sampled_from([2, 7, 30]))
        options |= {"use_sliding_window": True, "sliding_window": window, "layer_types": types}
    if kind is not Phi3Config:
        options["rope_parameters"] = draw(FLAT_ROPES)
    if kind is Qwen3MoeConfig:
        return Case("drawn", moe(*shape, **options))
    return Case("drawn", rotary(kind, *shape, **options))


@given(case=cases(), compiled=st.booleans())
def test_logits_equal_transformers(case: Case, compiled: bool) -> None:
    token_ids = torch.randint(VOCAB_SIZE, (70,), generator=torch.Generator().manual_seed(1))
    with TemporaryDirectory() as directory:
        reference = build(case, Path(directory))
        model = load_model(Path(directory), pool=open_pool() if compiled else None)
    with torch.no_grad():
        expected = reference(token_ids[None]).logits[0]
    torch.testing.assert_close(forward(model, token_ids), expected, rtol=1e-5, atol=1e-4)
