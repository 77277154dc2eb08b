"""Llama 2, 3, 3.1 and 3.2 (text)."""

from tandem.models.architecture import Architecture
from tandem.models.architectures.decoder import read_decoder
from tandem.models.config_reader import ConfigReader
from tandem.spec.model import ModelSpec


def read_spec(config: ConfigReader) -> ModelSpec:
    """Facts from a Llama `config.json`; `attention_bias` covers all four projections."""
    bias = config.flag("attention_bias", False)
    return read_decoder(
        "llama",
        config,
        max_positions=2048,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=config.flag("mlp_bias", False),
    )


ARCHITECTURE = Architecture(
    name="llama",
    read_spec=read_spec,
    prefix="model.",
    layer_prefix="model.layers.{layer}.",
    layer_modules={
        "attention_norm": "input_layernorm",
        "q": "self_attn.q_proj",
        "k": "self_attn.k_proj",
        "v": "self_attn.v_proj",
        "output": "self_attn.o_proj",
        "mlp_norm": "post_attention_layernorm",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
    },
    outer_modules={
        "embedding": "model.embed_tokens",
        "final_norm": "model.norm",
        "head": "lm_head",
    },
)
