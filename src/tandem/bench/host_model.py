"""The model that host-only runs compute: a Llama shape with the same random weights everywhere."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from tandem.models.architecture import load_architecture
from tandem.models.checkpoint_loader import checkpoint_tensors
from tandem.models.config import read_model_spec
from tandem.models.load import load_model
from tandem.models.model import Model
from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec

SEED = 0


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """An untied Llama, as `config.json` has it."""

    name: str
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    intermediate_size: int
    vocab_size: int
    max_positions: int = 2048

    def config(self, dtype: DType) -> dict[str, Any]:
        """`config.json`; without an end-of-sequence token, so that every run has its length."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "intermediate_size": self.intermediate_size,
            "vocab_size": self.vocab_size,
            "max_position_embeddings": self.max_positions,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": False,
            "bos_token_id": None,
            "eos_token_id": None,
            "dtype": dtype.value,
        }

    def write(self, directory: Path, dtype: DType) -> ModelSpec:
        """Write `config.json` into `directory`; returns it as the engine reads it."""
        (directory / "config.json").write_text(json.dumps(self.config(dtype)), encoding="utf-8")
        return read_model_spec(directory)


LLAMA_246M = LlamaShape("Llama shape of 246M", 1024, 16, 16, 4, 2816, 32_000)
LLAMA_30M = LlamaShape("Llama shape of 30M", 512, 8, 8, 2, 1408, 8_000)


def dummy_model(directory: Path) -> Model:
    """The weights that `--load-format dummy` makes, for a peer to compute with."""
    return load_model(directory, load_format="dummy", seed=SEED)


def write_checkpoint(directory: Path) -> Path:
    """Write those weights beside `config.json` as the hub has them; returns the file."""
    model, file = dummy_model(directory), directory / "model.safetensors"
    tensors = checkpoint_tensors(model.weights, load_architecture(model.spec.architecture))
    save_file(tensors, file, metadata={"format": "pt"})
    return file
