"""A tiny model written to a directory as its publisher would, quantized."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from tests.parity.published_formats import Published
from tests.parity.quantized_weights import CASE, layer_maps, with_weights
from tests.parity.tiny_models import build
from torch import Tensor
from transformers import PreTrainedModel

FILE = "model.safetensors"


def write(directory: Path, published: Published, shards: int = 1) -> PreTrainedModel:
    """The checkpoint, and transformers' model with the numbers that it holds."""
    model = build(CASE, directory)
    stored, meanings = load_file(directory / FILE), {}
    for name, weight in layer_maps(model).items():
        if not name.endswith(published.kept or ("?",)):
            parts, meanings[name] = published.pack(weight)
            del stored[f"{name}.weight"]
            stored |= {f"{name}.{part}": tensor.contiguous() for part, tensor in parts.items()}
    set_config(directory, quantization_config=dict(published.config))
    (directory / FILE).unlink()
    save(directory, stored, shards)
    return with_weights(model, meanings)


def save(directory: Path, stored: Mapping[str, Tensor], shards: int = 1) -> None:
    """In one file, or dealt out over several, so that parts of a weight lie in different ones."""
    if shards == 1:
        save_file(dict(stored), directory / FILE)
        return
    places = {name: f"model-{i % shards}.safetensors" for i, name in enumerate(sorted(stored))}
    for file in set(places.values()):
        save_file({n: stored[n] for n in stored if places[n] == file}, directory / file)
    (directory / f"{FILE}.index.json").write_text(json.dumps({"weight_map": places}))


def change(directory: Path, tensors: Mapping[str, Tensor | None]) -> None:
    """Replace or add tensors; None drops one."""
    stored = {**load_file(directory / FILE), **tensors}
    save(directory, {name: tensor for name, tensor in stored.items() if tensor is not None})


def set_config(directory: Path, **values: Any) -> None:
    """Set keys of config.json."""
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
