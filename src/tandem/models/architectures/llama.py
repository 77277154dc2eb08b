"""Llama 2, 3, 3.1 and 3.2 (text)."""

from tandem.models.architecture import Architecture
from tandem.models.config_fields import read_activation, read_dtype, read_heads, read_rope
from tandem.models.config_reader import ConfigReader
from tandem.spec.model import ModelSpec


def read_spec(config: ConfigReader) -> ModelSpec:
    """Facts from a Llama `config.json`; `attention_bias` covers all four projections."""
    heads, kv_heads, head_dim = read_heads(config)
    max_positions = config.count("max_position_embeddings", 2048)
    attention_bias = config.flag("attention_bias", False)
    return ModelSpec(
        architecture="llama",
        vocab_size=config.count("vocab_size"),
        hidden_size=config.count("hidden_size"),
        num_layers=config.count("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=config.count("intermediate_size"),
        max_positions=max_positions,
        norm_eps=config.number("rms_norm_eps", 1e-6),
        activation=read_activation(config, "hidden_act", "silu"),
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=config.flag("mlp_bias", False),
        rope=read_rope(config, head_dim, max_positions),
        tie_embeddings=config.flag("tie_word_embeddings", False),
        dtype=read_dtype(config),
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
