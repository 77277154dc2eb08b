"""Mixtral: Mistral with a mixture of experts in every layer."""

from dataclasses import replace

from tandem.models.architectures import llama
from tandem.models.architectures.decoder import read_decoder
from tandem.models.config_experts import KEYS, read_experts
from tandem.models.config_fields import read_heads
from tandem.models.config_reader import ConfigReader
from tandem.models.config_rope import read_rope
from tandem.models.config_windows import read_uniform_window
from tandem.spec.model import ModelSpec

_MAX_POSITIONS = 131072
_DENSE_MODULES = ("gate", "up", "down")


def read_spec(config: ConfigReader) -> ModelSpec:
    """Facts from a Mixtral `config.json`; `intermediate_size` is that of an expert."""
    config = config.with_defaults({"num_key_value_heads": 8})
    _, _, head_dim = read_heads(config)
    positions = config.count("max_position_embeddings", _MAX_POSITIONS)
    experts = read_experts(
        config,
        count=8,
        per_token=2,
        intermediate_size=config.count("intermediate_size"),
        renormalized=True,
    )
    return read_decoder(
        "mixtral",
        config,
        max_positions=_MAX_POSITIONS,
        norm_eps=1e-5,
        rope=read_rope(config, head_dim, positions, 1e6),
        windows=read_uniform_window(config, config.count("num_hidden_layers")),
        experts=experts,
    )


ARCHITECTURE = replace(
    llama.ARCHITECTURE,
    name="mixtral",
    read_spec=read_spec,
    layer_modules={
        **{
            name: stored
            for name, stored in llama.ARCHITECTURE.layer_modules.items()
            if name not in _DENSE_MODULES
        },
        "router": "block_sparse_moe.gate",
        "experts.gate": "block_sparse_moe.experts.{expert}.w1",
        "experts.up": "block_sparse_moe.experts.{expert}.w3",
        "experts.down": "block_sparse_moe.experts.{expert}.w2",
    },
    features=KEYS,
)
