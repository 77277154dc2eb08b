"""Whatever a `config.json` says, it is read, or one line says what is wrong with it."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.models import configs

from tandem.models.config import read_model_spec
from tandem.models.rotary import Rotary
from tandem.spec.errors import ModelError

PUBLISHED: dict[str, dict[str, Any]] = {
    name: value
    for name, value in vars(configs).items()
    if isinstance(value, dict) and "architectures" in value
}
ROPES: tuple[dict[str, Any], ...] = (
    {"rope_type": "llama3", **configs.LLAMA3_SCALING},
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 2.5},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
    {"type": "longrope", "short_factor": [1.0] * 64, "long_factor": [2.0] * 64},
)
MAX_HEAD_DIM = 1 << 20
NUMBERS = (None, True, False, -1, 0, 1, 2, 2**31, 2**63, 10**30, -0.5, 1e-300, 0.5, 1e6, 1e308)
ODD: tuple[Any, ...] = (*NUMBERS, "", "10", "yarn", [], [1], {}, {"a": 1})


def sections(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """It, and all objects in it."""
    yield values
    for value in values.values():
        if isinstance(value, dict):
            yield from sections(value)


def read(folder: Path, config: dict[str, Any]) -> None:
    """A line if it cannot be; else its rotations are numbers."""
    (folder / "config.json").write_text(json.dumps(config))
    message = "read"
    try:
        spec = read_model_spec(folder).for_length(64)
        if spec.head_dim <= MAX_HEAD_DIM:
            for rope in spec.ropes:
                made = Rotary.of(rope, spec.head_dim, torch.device("cpu"))
                assert torch.isfinite(made.frequencies).all()
                assert math.isfinite(made.amplitude)
    except ModelError as error:
        message = error.message
    assert message.isprintable()
    assert len(message) < 1000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("odd")


@settings(max_examples=300)
@given(
    model=st.sampled_from(sorted(PUBLISHED)),
    rope=st.none() | st.sampled_from(ROPES),
    field=st.integers(0, 10**6),
    odd=st.sampled_from(ODD),
)
def test_a_field(
    folder: Path, model: str, rope: dict[str, Any] | None, field: int, odd: object
) -> None:
    config = json.loads(json.dumps(PUBLISHED[model]))
    if rope is not None:
        config["rope_scaling"] = dict(rope)
    places = [(section, key) for section in sections(config) for key in section]
    section, key = places[field % len(places)]
    section[key] = odd
    read(folder, config)


@pytest.mark.parametrize("rope", ROPES, ids=lambda rope: rope.get("rope_type", "longrope"))
@pytest.mark.parametrize("odd", ODD, ids=str)
def test_every_field_of_rotary_scaling(folder: Path, rope: dict[str, Any], odd: object) -> None:
    for key in (*rope, "original_max_position_embeddings", "attention_factor", "mscale"):
        read(folder, {**configs.LLAMA, "rope_scaling": {**rope, key: odd}})
