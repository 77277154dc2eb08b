"""Qwen3 (dense): Llama with RMS norms over each query and key head."""

from dataclasses import replace

from tandem.models.architectures import llama
from tandem.models.config_fields import read_activation, read_dtype, read_heads, read_rope
from tandem.models.config_reader import ConfigReader
from tandem.spec.model import ModelSpec


def read_spec(config: ConfigReader) -> ModelSpec:
    """Facts from a Qwen3 `config.json`.

    Raises:
        ModelError: sliding-window attention is switched on.
    """
    heads, kv_heads, head_dim = read_heads(config, default_head_dim=128)
    max_positions = config.count("max_position_embeddings", 32768)
    attention_bias = config.flag("attention_bias", False)
    spec = ModelSpec(
        architecture="qwen3",
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
        qk_norm=True,
        rope=read_rope(config, head_dim, max_positions),
        tie_embeddings=config.flag("tie_word_embeddings", False),
        dtype=read_dtype(config),
    )
    _refuse_sliding_window(config, spec.num_layers)
    return spec


def _refuse_sliding_window(config: ConfigReader, num_layers: int) -> None:
    # The window applies from layer `max_window_layers` on, unless `layer_types` lists it outright.
    windowed = config.flag("use_sliding_window", False) and config.get("sliding_window") is not None
    layer_types = config.get("layer_types")
    if isinstance(layer_types, list):
        windowed = any(kind != "full_attention" for kind in layer_types)
    elif windowed:
        first = config.get("max_window_layers")
        windowed = (28 if first is None else first) < num_layers
    if windowed:
        raise config.error("sliding-window attention is not supported; use another model")


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
