"""Qwen3-MoE: Qwen3 with a mixture of experts in every layer, or in some."""

from dataclasses import replace

from tandem.models.architectures import qwen3
from tandem.models.architectures.decoder import read_decoder
from tandem.models.config_experts import KEYS, read_dense_layers, read_experts
from tandem.models.config_reader import ConfigReader
from tandem.models.config_windows import read_uniform_window
from tandem.spec.model import ModelSpec


def read_spec(config: ConfigReader) -> ModelSpec:
    """Facts from a Qwen3-MoE `config.json`; `intermediate_size` is that of layers without experts.

    Unlike Qwen3 it has the same window in all layers if `use_sliding_window` is true, and a head
    dimension of hidden size / heads if none is named.
    """
    num_layers = config.count("num_hidden_layers")
    config = config.with_defaults({"num_key_value_heads": 4, "sliding_window": 4096})
    bias = config.flag("attention_bias", False)
    slides = config.flag("use_sliding_window", False)
    experts = read_experts(
        config,
        count=128,
        per_token=8,
        intermediate_size=config.count("moe_intermediate_size", 768),
        renormalized=config.flag("norm_topk_prob", False),
        dense_layers=read_dense_layers(config, num_layers),
    )
    return read_decoder(
        "qwen3_moe",
        config,
        max_positions=32768,
        qkv_bias=bias,
        output_bias=bias,
        qk_norm=True,
        windows=read_uniform_window(config, num_layers) if slides else (),
        experts=experts,
    )


ARCHITECTURE = replace(
    qwen3.ARCHITECTURE,
    name="qwen3_moe",
    read_spec=read_spec,
    layer_modules={
        **qwen3.ARCHITECTURE.layer_modules,
        "router": "mlp.gate",
        "experts.gate": "mlp.experts.{expert}.gate_proj",
        "experts.up": "mlp.experts.{expert}.up_proj",
        "experts.down": "mlp.experts.{expert}.down_proj",
    },
    features=KEYS,
)
