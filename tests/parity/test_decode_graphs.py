"""Decodes launched as graphs give the tokens of their operations, in every architecture.

The emulator replays what was recorded with its arguments frozen: whatever the host would have to
tell a graph in a later step comes out wrong here, as on a GPU.
"""

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pytest
from tests.parity.generation import PROMPTS, generate
from tests.parity.tiny_models import CASES, Case, build
from tests.support.engines import TestEngine, model_engine
from tests.support.setups import Setup

from tandem.models.load import load_model
from tandem.models.model import Model
from tandem.runtime.decode_graphs import DecodeGraphs
from tandem.spec.kv_type import CodeType, NarrowFloat

_OF_EACH = 2  # cases of an architecture
_TOKENS = 24  # behind prompts that end before, in and behind a window


@dataclass(frozen=True, slots=True)
class Way:
    """A setup, and how it is told from operations launched one by one."""

    setup: Setup
    graphed: Setup


def way(**options: object) -> Way:
    """Device first, in the exact emulator."""
    base = {
        "device_blocks": 32,
        "max_num_seqs": 4,
        "executor": "exact",
        "executor_seed": 4,
    } | options
    made = Setup(**base)  # pyright: ignore[reportArgumentType]
    return Way(made, Setup(**(base | {"graphs": True})))  # pyright: ignore[reportArgumentType]


WAYS = {
    "ahead": way(),
    "plain loop": way(overlap=False),
    "preempted": way(device_blocks=11),
    "swapped": way(device_blocks=11, host_blocks=32, preemption_mode="swap"),
    "spilled": way(device_blocks=11, host_blocks=32, strategy="ride-along"),
    "fp8 pages": way(kv=NarrowFloat.FP8),
    "int8 pages": way(kv=CodeType.INT8),
    "int4 pages": way(kv=CodeType.INT4),
}


def _family(case: Case) -> str:
    return case.id.partition("-")[0]


_CHOSEN = [case for _, cases in groupby(CASES, _family) for case in [*cases][:_OF_EACH]]


def graphs_of(engine: TestEngine) -> DecodeGraphs:
    graphs = engine.machine.runner.graphs
    assert graphs is not None
    return graphs


def agree(model: Model, chosen: Way) -> None:
    with model_engine(model, chosen.setup) as engine:
        expected = generate(engine.core, PROMPTS, _TOKENS)
    with model_engine(model, chosen.graphed) as engine:
        assert generate(engine.core, PROMPTS, _TOKENS) == expected
        engine.check_idle()
        graphs = graphs_of(engine)
    assert graphs.recording.problem is None
    assert graphs.num_replayed > _TOKENS // 4
    assert len({tuple(made) for made in expected}) > 1


@pytest.mark.parametrize("case", _CHOSEN, ids=lambda case: case.id)
def test_every_architecture(case: Case, tmp_path: Path) -> None:
    build(case, tmp_path)
    agree(load_model(tmp_path), WAYS["ahead"])


@pytest.mark.parametrize("name", [name for name in WAYS if name != "ahead"])
def test_every_way(name: str, tmp_path: Path) -> None:
    # head dimensions of codes are multiples of 32
    case = next(case for case in CASES if case.id == "llama-31-rope")
    build(case, tmp_path)
    agree(load_model(tmp_path), WAYS[name])
