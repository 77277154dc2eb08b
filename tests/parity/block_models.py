"""Tiny models of as many layers as take turns in the slots, for blocks of batches."""

from tests.parity.tiny_models import Case, gemma, moe, opt, rotary
from transformers import Gemma2Config, LlamaConfig, MixtralConfig, Qwen3Config

LLAMA = Case("llama-5-layers", rotary(LlamaConfig, 32, 4, 2, 8, num_hidden_layers=5))
OPT = Case("opt-4-layers", opt(32, 4, num_hidden_layers=4))
GEMMA2 = Case(
    "gemma2-4-layers",
    gemma(
        Gemma2Config,
        32, 4, 2, 16,
        num_hidden_layers=4,
        attn_logit_softcapping=2.0,
        final_logit_softcapping=5.0,
    ),
)  # fmt: skip
QWEN3 = Case("qwen3-4-layers", rotary(Qwen3Config, 32, 4, 2, 16, num_hidden_layers=4))
MIXTURE = Case(
    "mixtral-4-layers", rotary(MixtralConfig, 32, 4, 2, 8, num_hidden_layers=4, num_local_experts=3)
)
WIDE = Case(
    "llama-5-wide-layers",
    rotary(LlamaConfig, 128, 4, 2, 32, intermediate_size=256, num_hidden_layers=5),
)
WIDE_MIXTURE = Case(
    "qwen3moe-4-wide-layers", moe(128, 4, 2, 32, moe_intermediate_size=128, num_hidden_layers=4)
)
WIDE_GEMMA2 = Case(
    "gemma2-5-wide-layers",
    gemma(
        Gemma2Config,
        128, 4, 2, 32,
        intermediate_size=256,
        num_hidden_layers=5,
        attn_logit_softcapping=2.0,
        final_logit_softcapping=5.0,
    ),
)  # fmt: skip
BLOCK_MODELS = (LLAMA, OPT, GEMMA2, QWEN3)
