"""The placement that a user's file asks for."""

import json
from pathlib import Path
from typing import Any

from tandem.plan.sweep_layers import SweepChoice
from tandem.plan.weights import (
    EMBEDDING_HOMES,
    HOMES,
    EmbeddingHome,
    Home,
    PlacedWeights,
    WeightPlacement,
    as_runs,
    homes_by_layer,
    resident_experts,
)
from tandem.spec.errors import ConfigError
from tandem.spec.user_file import parse_object, read_text

_MAX_FILE_BYTES = 1 << 20
# what a file means beside an accelerator, and without one
_BESIDE: dict[Home, Home] = {"disk": "disk_streamed"}
_ALONE: dict[Home, Home] = {"disk-cpu": "disk"}


def read_placement(path: Path, num_layers: int, *, host_only: bool = False) -> PlacedWeights:
    """The placement in a file: `{"layers": [{"first_layer": 0, "last_layer": 3, "home":
    "streamed"}, ...], "embedding": "host"}`, where what is not named is resident. With home
    `cpu-mlp` or `host-mlp`, `"experts": [3, 7]` are resident too.

    Args:
        host_only: there is no accelerator for layers on disk to go to, nor for embeddings to be
            apart from.

    Raises:
        ConfigError: no such file, not of that form, or it does not fit the model.
    """
    entries, embedding = _read_entries(path)
    runs: list[WeightPlacement] = []
    for entry in entries:
        run = _read_run(path, entry)
        if run.first_layer > run.last_layer:
            raise _refusal(
                path, f"first_layer {run.first_layer} is beyond last_layer {run.last_layer}; "
                "exchange them"
            )  # fmt: skip
        if not 0 <= run.first_layer <= run.last_layer < num_layers:
            raise _refusal(
                path, f"layers {run.first_layer} to {run.last_layer} are none of the model's "
                f"0 to {num_layers - 1}"
            )  # fmt: skip
        runs.append(run)
    try:
        named: dict[int, Home] = homes_by_layer(runs)
        meant = _ALONE if host_only else _BESIDE
        named = {layer: meant.get(home, home) for layer, home in named.items()}
        homes: list[Home] = [named.get(layer, "resident") for layer in range(num_layers)]
        placement = as_runs(homes, resident_experts(runs))
        SweepChoice.of_plan(placement)  # refuses homes that do not go together
    except ConfigError as error:
        raise _refusal(path, error.message) from None
    return PlacedWeights(placement, "resident" if host_only else embedding)


def _read_entries(path: Path) -> tuple[list[Any], EmbeddingHome]:
    try:
        values = parse_object(read_text(path, _MAX_FILE_BYTES, "placement"))
    except ConfigError as error:
        raise _refusal(path, error.message) from None
    if not {"layers"} <= values.keys() <= {"layers", "embedding"}:
        raise _refusal(path, "it needs a list 'layers', and nothing else but 'embedding'")
    entries: Any = values["layers"]
    if not isinstance(entries, list):
        raise _refusal(path, "it needs a list 'layers'")
    embedding: Any = values.get("embedding", "resident")
    if embedding not in EMBEDDING_HOMES:
        named = json.dumps(embedding)
        raise _refusal(path, f"embedding {named} is none of {', '.join(EMBEDDING_HOMES)}")
    return entries, embedding


def _read_run(path: Path, entry: Any) -> WeightPlacement:
    needs = f"{json.dumps(entry)} needs first_layer, last_layer and home"
    if not isinstance(entry, dict) or "home" not in entry:
        raise _refusal(path, needs)
    if not isinstance(entry.get("experts", []), list):
        raise _refusal(path, f"{needs}, and experts as a list if any")
    experts: list[Any] = entry.get("experts", [])
    numbers = (entry.get("first_layer", 0), entry.get("last_layer", 0), *experts)
    if not all(isinstance(n, int) and not isinstance(n, bool) for n in numbers):
        raise _refusal(path, f"{json.dumps(entry)}: layers and experts are whole numbers")
    try:
        rest: dict[str, Any] = {name: entry[name] for name in entry if name != "experts"}
        run = WeightPlacement(experts=tuple(experts), **rest)
    except TypeError:
        raise _refusal(path, needs) from None
    except ConfigError as error:
        raise _refusal(path, error.message) from None
    if run.home not in HOMES:
        raise _refusal(path, f"home '{run.home}' is none of {', '.join(HOMES)}")
    return run


def _refusal(path: Path, reason: str) -> ConfigError:
    return ConfigError(f"cannot use placement {path}: {reason}", param="placement")
