"""Models in some memory, as each kind of part measures them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tandem.models.catalogue import known_models
from tandem.models.config import read_model_spec
from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec


@dataclass(frozen=True, slots=True)
class Shape:
    """A model of the catalogue, all of its layers or cut down in every direction.

    Attributes:
        name: in the catalogue.
        changes: of its `config.json`.
    """

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def write(self, directory: Path, dtype: DType) -> ModelSpec:
        """Write `config.json`, without an end of sequence, so that every run has its length."""
        known = next(model for model in known_models() if model.name == self.name)
        values = {key: value for key, value in known.config.values.items() if "eos" not in key}
        values |= {**self.changes, "torch_dtype": dtype.value, "eos_token_id": None}
        values["model_type"] = known.config.path.stem  # which transformers knows a family by
        (directory / "config.json").write_text(json.dumps(values), encoding="utf-8")
        return read_model_spec(directory)


@dataclass(frozen=True, slots=True)
class OnlineCell:
    """A model in some memory.

    Attributes:
        quantization: as the engine's flag. memory_bytes: of the accelerator, that may be used.
        policies: strategies beside `gpu-only`. peer: whether transformers runs it too.
        kv_bytes: of it, for KV alone, where that alone is capped; 0: it is not.
    """

    name: str
    shape: Shape
    quantization: str
    memory_bytes: int
    policies: tuple[str, ...]
    peer: bool
    kv_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LargerCell:
    """A model whose weights are larger than the memory that may be used.

    Attributes:
        peer: whether accelerate runs it too, with the rest in host memory.
    """

    name: str
    shape: Shape
    memory_bytes: int
    batches: tuple[int, ...]
    peer: bool


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """A model in some memory, whose plans are predicted and executed.

    Attributes:
        prompt_tokens, new_tokens: means of the workload. requests: of an offline job.
        host_bytes: of the host's memory; 0: the scale's. peer: whether transformers runs it too,
            with weights and cache that do not fit in host memory.
        quantization: as the engine's flag, with a group's size.
    """

    name: str
    shape: Shape
    memory_bytes: int
    policies: tuple[str, ...]
    prompt_tokens: int
    new_tokens: int
    requests: int = 0
    host_bytes: int = 0
    peer: bool = False
    quantization: str = "none"
