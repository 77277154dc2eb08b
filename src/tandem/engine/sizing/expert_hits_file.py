"""Counts of how often tokens went to each expert, in a file: written by one run, read by another.

`{"format": 1, "model": "...", "expert_hits": [[12, 0, ...], ...]}`: a list for each layer, and in
it a number for each expert; layers without experts have zeros, or an empty list.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tandem.cost.expert_use import ExpertUse
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec
from tandem.spec.user_file import parse_object, read_text, replace_text

FORMAT = 1
_MAX_FILE_BYTES = 16 << 20


def read_expert_use(path: Path, spec: ModelSpec) -> ExpertUse:
    """What a file says about the experts of a model.

    Raises:
        ConfigError: no such file, not of that form, nothing counted, or of another model.
    """
    if spec.experts is None:
        raise ConfigError(
            f"{spec.architecture} has no experts to place; leave --expert-hits out",
            param="expert_hits",
        )
    values = _read(path)
    name: Any = values.get("model")
    counts: Any = values.get("expert_hits")
    if values.get("format") != FORMAT or not isinstance(name, str) or not _is_table(counts):
        raise _refusal(
            path, f"it needs format {FORMAT}, a model's name, and a list of whole numbers from 0 "
            "on for each layer in 'expert_hits'"
        )  # fmt: skip
    _check_model(path, name, counts, spec)
    if not any(map(any, counts)):
        raise _refusal(path, "nothing has been counted; run the model for some requests first")
    return ExpertUse.of_counts(counts, spec)


def _read(path: Path) -> dict[str, Any]:
    try:
        return parse_object(read_text(path, _MAX_FILE_BYTES, "counts"))
    except ConfigError as error:
        raise _refusal(path, error.message) from None


def _is_table(counts: Any) -> bool:
    return isinstance(counts, list) and all(
        isinstance(row, list) and all(type(count) is int and count >= 0 for count in row)
        for row in counts
    )


def _check_model(path: Path, name: str, counts: list[list[int]], spec: ModelSpec) -> None:
    assert spec.experts is not None
    count = spec.experts.count
    if len(counts) != spec.num_layers:
        raise _refusal(
            path, f"it has {len(counts)} layers of '{name}', but this model has {spec.num_layers}; "
            "count with this model"
        )  # fmt: skip
    for layer, row in enumerate(counts):
        if spec.routed_experts(layer) is None:
            if any(row):
                raise _refusal(
                    path, f"layer {layer} of '{name}' has experts, but not of this model"
                )
        elif len(row) != count:
            raise _refusal(
                path, f"layer {layer} of '{name}' has {len(row)} experts, but of this model "
                f"{count}; count with this model"
            )  # fmt: skip


def check_writable(path: Path, spec: ModelSpec) -> None:
    """Before anything is loaded, that counts can be taken and kept.

    Raises:
        ConfigError: the model has no experts, or the folder is not there or not writable.
    """
    if spec.experts is None:
        raise ConfigError(
            f"{spec.architecture} has no experts to count; leave --save-expert-hits out",
            param="save_expert_hits",
        )
    folder = path.parent
    if path.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(
            f"cannot write expert hits to {path}: choose a file in a folder that is there and "
            "writable",
            param="save_expert_hits",
        )


def write_expert_hits(path: Path, model: str, counts: Sequence[Sequence[int]]) -> None:
    """At once or not at all; what was there before is replaced.

    Raises:
        ConfigError: the file cannot be written.
    """
    values = {"format": FORMAT, "model": model, "expert_hits": counts}
    try:
        replace_text(path, json.dumps(values))
    except OSError as error:
        raise ConfigError(
            f"cannot write expert hits to {path}: {error.strerror or error}",
            param="save_expert_hits",
        ) from None


def _refusal(path: Path, reason: str) -> ConfigError:
    return ConfigError(f"cannot use expert hits {path}: {reason}", param="expert_hits")
