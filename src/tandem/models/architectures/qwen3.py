"""Qwen3 (dense): Llama with RMS norms over each query and key head."""

from dataclasses import replace

from tandem.models.architectures import llama
from tandem.models.architectures.decoder import read_decoder
from tandem.models.config_reader import ConfigReader
from tandem.models.config_windows import read_qwen_windows
from tandem.spec.model import ModelSpec


def read_spec(config: ConfigReader) -> ModelSpec:
    """Facts from a Qwen3 `config.json`; `attention_bias` covers all four projections."""
    bias = config.flag("attention_bias", False)
    return read_decoder(
        "qwen3",
        config.with_defaults({"num_key_value_heads": 32}),
        max_positions=32768,
        head_dim=128,
        qkv_bias=bias,
        output_bias=bias,
        qk_norm=True,
        windows=read_qwen_windows(config, config.count("num_hidden_layers")),
    )


ARCHITECTURE = replace(
    llama.ARCHITECTURE,
    name="qwen3",
    read_spec=read_spec,
    layer_modules={
        **llama.ARCHITECTURE.layer_modules,
        "q_norm": "self_attn.q_norm",
        "k_norm": "self_attn.k_norm",
    },
)
