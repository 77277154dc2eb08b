"""What an architecture adds to the shared model: a reading of its config, and its tensor names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module

from tandem.models.config_reader import ConfigReader
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import FUSED_MODULES


@dataclass(frozen=True, slots=True)
class Architecture:
    """An architecture as data.

    Attributes:
        name: registry key, `ModelSpec.architecture`.
        read_spec: turns a `config.json` into facts; raises ModelError on what is unsupported.
        prefix: what all checkpoint names but the head's start with, e.g. `model.`.
        layer_prefix: checkpoint prefix of a layer with `{layer}`, e.g. `model.layers.{layer}.`.
        layer_modules: canonical module name within a layer -> checkpoint's, e.g. `q` ->
            `self_attn.q_proj`.
            A fused module (`qkv`) here means that checkpoints hold it whole. Those of an expert
            are here as `experts.gate` and so on, to names with `{expert}`.
        outer_modules: the same outside the layers (`embedding` -> `model.embed_tokens`).
        section: key of config.json under which the text model's facts are; empty: not nested.
        ignored: what names of tensors begin with that belong to something else than the text model.
        features: keys of config.json that are refused elsewhere, and read by `read_spec` here.
    """

    name: str
    read_spec: Callable[[ConfigReader], ModelSpec]
    prefix: str
    layer_prefix: str
    layer_modules: Mapping[str, str]
    outer_modules: Mapping[str, str]
    section: str = ""
    ignored: tuple[str, ...] = ()
    features: frozenset[str] = frozenset()

    @property
    def fused_modules(self) -> frozenset[str]:
        """Modules that checkpoints hold whole, of those that lie fused in memory."""
        return frozenset(FUSED_MODULES.keys() & self.layer_modules.keys())

    def layer_tensor(self, layer: int, name: str) -> str:
        """Checkpoint name of a layer's canonical weight such as `q.weight`."""
        module, _, part = name.rpartition(".")
        if module.startswith("experts."):
            _, expert, projection = module.split(".")
            stored = self.layer_modules[f"experts.{projection}"].format(expert=expert)
        else:
            stored = self.layer_modules[module]
        return f"{self.layer_prefix.format(layer=layer)}{stored}.{part}"

    def outer_tensor(self, name: str) -> str:
        """Checkpoint name of a canonical weight outside the layers such as `embedding.weight`."""
        module, _, part = name.rpartition(".")
        return f"{self.outer_modules[module]}.{part}"


# Entry of `architectures` in config.json -> file in `models/architectures/`, imported when needed.
REGISTRY: Mapping[str, str] = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "Phi3ForCausalLM": "phi3",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3",
    "Gemma3ForConditionalGeneration": "gemma3_multimodal",
    "OPTForCausalLM": "opt",
}


def load_architecture(name: str) -> Architecture:
    """The architecture with registry key `name` (`llama`, `qwen3`, ...)."""
    return import_module(f"tandem.models.architectures.{name}").ARCHITECTURE


def find_architecture(config: ConfigReader) -> Architecture:
    """The architecture that a `config.json` names in its `architectures`.

    Raises:
        ModelError: none is named, or it is not supported.
    """
    named = config.get("architectures")
    supported = ", ".join(REGISTRY)
    if not isinstance(named, list) or not named:
        raise config.error(f"'architectures' is missing; it must name one of: {supported}")
    for entry in named:
        if isinstance(entry, str) and entry in REGISTRY:
            return load_architecture(REGISTRY[entry])
    raise config.error(f"architecture '{named[0]}' is not supported; supported are: {supported}")
