"""A tiny model written to a directory as its publisher would, quantized."""

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tests.parity.published_formats import Published
from tests.parity.quantized_weights import CASE
from tests.parity.tiny_models import Case, build
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

FILE = "model.safetensors"
_MAP = re.compile(r"model\.layers\..*(_proj|\.w[123])\.weight")


@dataclass(frozen=True, slots=True)
class Written:
    """A quantized checkpoint.

    Attributes:
        reference: transformers' model with the numbers that it holds.
        weights: of the layers' linear maps, by the checkpoint's name of the map.
    """

    reference: PreTrainedModel
    weights: Mapping[str, Tensor]


def write(directory: Path, published: Published, shards: int = 1, case: Case = CASE) -> Written:
    """Of every linear map in the layers but routers, those that the format does not leave out."""
    build(case, directory)
    plain = load_file(directory / FILE)
    stored, weights = dict(plain), {}
    for name, weight in plain.items():
        if _MAP.fullmatch(name):
            module = name.removesuffix(".weight")
            weights[module] = weight
            if not module.endswith(published.kept or ("?",)):
                parts, weights[module] = published.pack(weight)
                del stored[name]
                stored |= {f"{module}.{part}": t.contiguous() for part, t in parts.items()}
    reference = _with_weights(directory, plain, weights)
    set_config(directory, quantization_config=dict(published.config))
    (directory / FILE).unlink()
    save(directory, stored, shards)
    return Written(reference, weights)


def _with_weights(
    directory: Path, plain: Mapping[str, Tensor], weights: Mapping[str, Tensor]
) -> PreTrainedModel:
    """transformers' model from a checkpoint of its own: it stacks experts as it reads them."""
    place = directory / "plain"
    place.mkdir()
    shutil.copy(directory / "config.json", place)
    numbers = {**plain, **{f"{name}.weight": weight for name, weight in weights.items()}}
    save_file(numbers, place / FILE, {"format": "pt"})
    model = AutoModelForCausalLM.from_pretrained(
        place,
        dtype=torch.float32,
        attn_implementation="eager",
        experts_implementation="eager",
    )
    shutil.rmtree(place)
    return model.eval()


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
