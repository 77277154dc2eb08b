"""Gemma 3 (text): Gemma 2 with norms of heads, two rotary embeddings, five windows to one."""

from dataclasses import replace

from tandem.models.architectures import gemma2
from tandem.models.architectures.decoder import read_decoder
from tandem.models.config_fields import read_heads
from tandem.models.config_reader import ConfigReader
from tandem.models.config_rope import rope_of
from tandem.models.config_windows import read_windows
from tandem.spec.model import ModelSpec, RopeSpec

_MAX_POSITIONS = 131072
_DEFAULTS = {
    "num_key_value_heads": 4,
    "sliding_window": 4096,
    "sliding_window_pattern": 6,
}


def read_spec(config: ConfigReader) -> ModelSpec:
    """Facts from the `config.json` of a Gemma 3 model for text.

    Raises:
        ModelError: a soft cap on attention, which no such model has.
    """
    config = config.with_defaults(_DEFAULTS)
    layers, pattern = config.count("num_hidden_layers"), config.count("sliding_window_pattern")
    return read_decoder(
        "gemma3",
        config,
        max_positions=_MAX_POSITIONS,
        head_dim=256,
        activation=gemma2.ACTIVATION,
        tied=True,
        qk_norm=True,
        windows=read_windows(config, layers, lambda layer: (layer + 1) % pattern != 0),
        rope=_read_rope(config, "full_attention", "rope_theta", 1e6),
        local_rope=_read_rope(config, "sliding_attention", "rope_local_base_freq", 1e4),
        stretched=False,
        **gemma2.read_gemma_facts(config),
    )


def _read_rope(config: ConfigReader, layer_type: str, theta_key: str, theta: float) -> RopeSpec:
    """A layer type's part of `rope_parameters`, or the former keys; scaling was of full layers."""
    section = config.section("rope_parameters").section(layer_type)
    if layer_type == "full_attention":
        scaling = config.section("rope_scaling").values
        section = replace(section, values={**section.values, **scaling})
    theta = section.number("rope_theta", config.number(theta_key, theta))
    _, _, head_dim = read_heads(config, 256)
    positions = config.count("max_position_embeddings", _MAX_POSITIONS)
    rope = rope_of(section, config, head_dim, positions, theta)
    if rope.kind == "longrope":
        raise config.error("rotary scaling 'longrope' is not supported for Gemma 3")
    return replace(rope, longest_positions=0)  # dynamic: up to where it changes nothing


ARCHITECTURE = replace(
    gemma2.ARCHITECTURE,
    name="gemma3",
    read_spec=read_spec,
    layer_modules={
        **gemma2.ARCHITECTURE.layer_modules,
        "q_norm": "self_attn.q_norm",
        "k_norm": "self_attn.k_norm",
    },
    features=frozenset({"final_logit_softcapping"}),
)
