"""Gemma 2: a window in every other layer, soft caps, norms before and after each branch."""

from dataclasses import replace
from typing import Any

from tandem.models.architectures import llama
from tandem.models.architectures.decoder import read_decoder
from tandem.models.config_reader import ConfigReader
from tandem.models.config_windows import read_windows
from tandem.spec.model import ModelSpec

_DEFAULTS = {
    "num_key_value_heads": 4,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "sliding_window": 4096,
}


def read_spec(config: ConfigReader) -> ModelSpec:
    """Facts from a Gemma 2 `config.json`: an absent soft cap has a default, a null one is none."""
    config = config.with_defaults(_DEFAULTS)
    layers = config.count("num_hidden_layers")
    return read_decoder(
        "gemma2",
        config,
        max_positions=8192,
        head_dim=256,
        activation=ACTIVATION,
        tied=True,
        windows=read_windows(config, layers, lambda layer: layer % 2 == 0),
        attention_soft_cap=read_soft_cap(config, "attn_logit_softcapping"),
        **read_gemma_facts(config),
    )


ACTIVATION = ("hidden_activation", "gelu_pytorch_tanh")


def read_gemma_facts(config: ConfigReader) -> dict[str, Any]:
    """What Gemma 2 and 3 have in common and no other architecture has."""
    hidden, heads = config.count("hidden_size"), config.count("num_attention_heads")
    if hidden % heads:
        raise config.error(f"hidden_size {hidden} is no multiple of {heads} attention heads")
    bias = config.flag("attention_bias", False)
    return {
        "norm_offset": 1.0,
        "post_norms": True,
        "embedding_scale": hidden**0.5,
        "query_scalar": config.number("query_pre_attn_scalar", 256.0),
        "logit_soft_cap": read_soft_cap(config, "final_logit_softcapping"),
        "qkv_bias": bias,
        "output_bias": bias,
    }


def read_soft_cap(config: ConfigReader, key: str) -> float:
    """A positive number; 0 if the key is absent or null."""
    return 0.0 if config.get(key) is None else config.number(key)


ARCHITECTURE = replace(
    llama.ARCHITECTURE,
    name="gemma2",
    read_spec=read_spec,
    layer_modules={
        **llama.ARCHITECTURE.layer_modules,
        "post_attention_norm": "post_attention_layernorm",
        "mlp_norm": "pre_feedforward_layernorm",
        "post_mlp_norm": "post_feedforward_layernorm",
    },
    features=frozenset({"attn_logit_softcapping", "final_logit_softcapping"}),
)
