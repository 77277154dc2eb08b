"""The text model of a Gemma 3 checkpoint that can see; its image encoder is not loaded."""

from dataclasses import replace

from tandem.models.architectures import gemma3
from tandem.models.config_reader import ConfigReader
from tandem.spec.model import ModelSpec

# Published files leave out what equals these.
_DEFAULTS = {"vocab_size": 262208, "num_attention_heads": 8}
_MODEL = "language_model.model."


def read_spec(config: ConfigReader) -> ModelSpec:
    """Facts from the `text_config` of a Gemma 3 `config.json`."""
    spec = gemma3.read_spec(config.with_defaults(_DEFAULTS))
    return replace(spec, architecture=ARCHITECTURE.name)


ARCHITECTURE = replace(
    gemma3.ARCHITECTURE,
    name="gemma3_multimodal",
    read_spec=read_spec,
    prefix=_MODEL,
    layer_prefix=f"{_MODEL}layers.{{layer}}.",
    outer_modules={
        "embedding": f"{_MODEL}embed_tokens",
        "final_norm": f"{_MODEL}norm",
        "head": "language_model.lm_head",
    },
    section="text_config",
    ignored=("vision_tower.", "multi_modal_projector."),
)
