"""Reads a model directory's `config.json` and `generation_config.json` into a `ModelSpec`."""

from dataclasses import replace
from pathlib import Path

from tandem.models.architecture import find_architecture
from tandem.models.config_reader import ConfigReader, read_json_object
from tandem.spec.errors import ModelError
from tandem.spec.model import ModelSpec

# Features that would change the result, refused unless the architecture has them.
_REFUSED = {
    "num_local_experts": "this architecture has no experts; use another model",
    "num_experts": "this architecture has no experts; use another model",
    "shared_expert_intermediate_size": "experts that all tokens share are not supported; use "
    "another model",
    "n_shared_experts": "experts that all tokens share are not supported; use another model",
    "attn_logit_softcapping": "this architecture has no such cap; remove it from config.json",
    "final_logit_softcapping": "this architecture has no such cap; remove it from config.json",
    "use_bidirectional_attention": "only causal attention is supported; use another model",
    "is_encoder_decoder": "encoder-decoder models are not supported; use a decoder-only model",
}


def read_model_spec(directory: Path) -> ModelSpec:
    """Facts about the model in `directory`, without touching its weights.

    End-of-sequence ids are those of both files; a file `generation_config.json` may be absent.

    Raises:
        ModelError: no such directory, no or a damaged `config.json`, an unsupported architecture
            or feature.
    """
    spec = spec_of_config(read_config(directory))
    generation = directory / "generation_config.json"
    if not generation.is_file():
        return spec
    eos = spec.eos_token_ids + read_json_object(generation).token_ids("eos_token_id")
    return replace(spec, eos_token_ids=tuple(dict.fromkeys(eos)))


def spec_of_config(config: ConfigReader) -> ModelSpec:
    """Facts from a parsed `config.json` alone.

    Raises:
        ModelError: an unsupported architecture or feature, or a damaged file.
    """
    architecture = find_architecture(config)
    eos = config.token_ids("eos_token_id")
    if architecture.section:
        config = config.section(architecture.section).with_defaults(config.values)
        eos += config.token_ids("eos_token_id")
    for key, reason in _REFUSED.items():
        if config.get(key) and key not in architecture.features:
            raise config.error(f"'{key}' is set: {reason}")
    spec = architecture.read_spec(config)
    bos = config.token_ids("bos_token_id")
    return replace(
        spec, eos_token_ids=tuple(dict.fromkeys(eos)), bos_token_id=bos[0] if bos else None
    )


def read_config(directory: Path) -> ConfigReader:
    """The parsed `config.json` of a model directory.

    Raises:
        ModelError: not a directory, or no readable `config.json` in it.
    """
    if not directory.is_dir():
        kind = "is a file, not a model directory" if directory.exists() else "does not exist"
        raise ModelError(
            f"{directory} {kind}; give a directory with config.json and *.safetensors files"
        )
    path = directory / "config.json"
    if not path.is_file():
        raise ModelError(
            f"{directory} holds no config.json; give a model directory in Hugging Face layout"
        )
    return read_json_object(path)
