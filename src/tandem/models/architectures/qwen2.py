"""Qwen2 and Qwen2.5 (dense): Llama with biases on queries, keys and values."""

from dataclasses import replace

from tandem.models.architectures import llama
from tandem.models.architectures.decoder import read_decoder
from tandem.models.config_reader import ConfigReader
from tandem.models.config_windows import read_qwen_windows
from tandem.spec.model import ModelSpec


def read_spec(config: ConfigReader) -> ModelSpec:
    """Facts from a Qwen2 `config.json`; its biases are not up to the file."""
    return read_decoder(
        "qwen2",
        config.with_defaults({"num_key_value_heads": 32}),
        max_positions=32768,
        qkv_bias=True,
        windows=read_qwen_windows(config, config.count("num_hidden_layers")),
    )


ARCHITECTURE = replace(llama.ARCHITECTURE, name="qwen2", read_spec=read_spec)
