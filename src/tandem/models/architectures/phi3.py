"""Phi-3 and Phi-3.5 (text): Llama with a sliding window, stored with fused projections."""

from dataclasses import replace

from tandem.models.architectures import llama
from tandem.models.architectures.decoder import read_decoder
from tandem.models.config_fields import read_heads
from tandem.models.config_reader import ConfigReader
from tandem.models.config_rope import rope_of
from tandem.models.config_windows import read_uniform_window
from tandem.spec.model import ModelSpec, RopeSpec


def read_spec(config: ConfigReader) -> ModelSpec:
    """Facts from a Phi-3 `config.json`.

    Raises:
        ModelError: a rotary embedding other than plain and LongRoPE, or of part of a head.
    """
    config = config.with_defaults({"original_max_position_embeddings": 4096})
    return read_decoder(
        "phi3",
        config,
        max_positions=4096,
        norm_eps=1e-5,
        rope=_read_rope(config),
        windows=read_uniform_window(config, config.count("num_hidden_layers")),
    )


def _read_rope(config: ConfigReader) -> RopeSpec:
    section = config.section("rope_scaling")
    if not section.values:
        section = config.section("rope_parameters")
    kind = section.get("rope_type") or section.get("type") or "default"
    if kind in ("su", "yarn"):  # what LongRoPE was called when these models came out
        kind = "longrope"
    if kind not in ("default", "longrope"):
        raise config.error(
            f"rotary scaling '{kind}' is not supported for Phi-3; supported are: default, longrope"
        )
    section = replace(section, values={**section.values, "rope_type": kind})
    theta = section.number("rope_theta", config.number("rope_theta", 10000.0))
    _, _, head_dim = read_heads(config)
    positions = config.count("max_position_embeddings", 4096)
    return rope_of(section, config, head_dim, positions, theta)


ARCHITECTURE = replace(
    llama.ARCHITECTURE,
    name="phi3",
    read_spec=read_spec,
    layer_modules={
        "attention_norm": "input_layernorm",
        "qkv": "self_attn.qkv_proj",
        "output": "self_attn.o_proj",
        "mlp_norm": "post_attention_layernorm",
        "gate_up": "mlp.gate_up_proj",
        "down": "mlp.down_proj",
    },
)
