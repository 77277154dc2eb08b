"""What the architectures that descend from Llama read from `config.json` under the same keys."""

from typing import Any

from tandem.models.config_fields import read_activation, read_dtype, read_heads
from tandem.models.config_reader import ConfigReader
from tandem.models.config_rope import read_rope, usable_positions
from tandem.spec.model import ModelSpec, RopeSpec


def read_decoder(
    name: str,
    config: ConfigReader,
    *,
    max_positions: int,
    head_dim: int | None = None,
    activation: tuple[str, str] = ("hidden_act", "silu"),
    norm_eps: float = 1e-6,
    tied: bool = False,
    rope: RopeSpec | None = None,
    stretched: bool = True,
    **facts: Any,
) -> ModelSpec:
    """Facts of a decoder with RMS norms, rotary positions and a gated feed-forward.

    Args:
        max_positions, head_dim, norm_eps, tied: what absent keys mean; see `read_heads` for
            `head_dim`.
        activation: its key, and what it is if that is absent.
        rope: None: as `read_rope` reads it.
        stretched: rotary scaling goes beyond `max_position_embeddings`; otherwise that has been
            raised already.
        facts: more fields of the specification.

    Raises:
        ModelError: a key is missing, or its value is not supported.
    """
    heads, kv_heads, head_dim = read_heads(config, head_dim)
    positions = config.count("max_position_embeddings", max_positions)
    rope = rope or read_rope(config, head_dim, positions)
    return ModelSpec(
        architecture=name,
        vocab_size=config.count("vocab_size"),
        hidden_size=config.count("hidden_size"),
        num_layers=config.count("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=config.count("intermediate_size"),
        max_positions=usable_positions(rope, positions) if stretched else positions,
        norm_eps=config.number("rms_norm_eps", norm_eps),
        activation=read_activation(config, *activation),
        rope=rope,
        tie_embeddings=config.flag("tie_word_embeddings", tied),
        dtype=read_dtype(config),
        **facts,
    )
