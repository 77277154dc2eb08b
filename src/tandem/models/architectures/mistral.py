"""Mistral (dense, text): Llama with a sliding window in every layer, or in none."""

from dataclasses import replace

from tandem.models.architectures import llama
from tandem.models.architectures.decoder import read_decoder
from tandem.models.config_reader import ConfigReader
from tandem.models.config_windows import read_uniform_window
from tandem.spec.model import ModelSpec


def read_spec(config: ConfigReader) -> ModelSpec:
    """Facts from a Mistral `config.json`: an absent `sliding_window` is 4096, a null one none."""
    config = config.with_defaults({"num_key_value_heads": 8, "sliding_window": 4096})
    return read_decoder(
        "mistral",
        config,
        max_positions=131072,
        windows=read_uniform_window(config, config.count("num_hidden_layers")),
    )


ARCHITECTURE = replace(llama.ARCHITECTURE, name="mistral", read_spec=read_spec)
