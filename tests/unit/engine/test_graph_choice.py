"""Graphs of decodes: charged where they fit, left out where not, refused where asked for."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from tests.unit.engine.small_model import FLOAT32, SPEC

from tandem.engine.sizing.capacities import Capacities
from tandem.engine.sizing.graph_choice import LABEL, recorded_notes, with_graphs
from tandem.engine.sizing.memory_plan import MemoryPlan, plan_memory
from tandem.memory.workspace import LargestStep, StepMemory
from tandem.plan.layer_launches import resident_parts
from tandem.plan.weights import Home, homes_by_layer
from tandem.runtime.recording import Recording
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.model import ExpertSpec, ModelSpec
from tandem.spec.parameters import weight_bytes
from tandem.spec.units import KIB, MIB

if TYPE_CHECKING:
    from tandem.runtime.layer_graphs import LayerGraphs

CONFIG = EngineConfig("m", max_num_seqs=4, max_num_batched_tokens=64)
ROOMY = Capacities(512 * MIB, 64 * MIB, graphs=True)
MIXTURE = replace(SPEC, architecture="mixtral", experts=ExpertSpec(4, 2, 32))


def plan(config: EngineConfig, capacities: Capacities, spec: ModelSpec = SPEC) -> MemoryPlan:
    return plan_memory(config, spec, FLOAT32, capacities)


def charged_bytes(memory: MemoryPlan) -> int:
    return sum(entry.predicted_bytes for entry in memory.ledger.entries if entry.label == LABEL)


def test_graphs_are_charged_before_blocks_fill_the_rest() -> None:
    tight = replace(ROOMY, device_bytes=300 * MIB)
    config = replace(CONFIG, max_num_seqs=1000, max_num_batched_tokens=1000)
    without, graphed = plan(replace(config, cuda_graphs="off"), tight), plan(config, tight)
    assert without.graphs is None
    assert charged_bytes(without) == 0
    assert graphed.graphs is not None
    assert charged_bytes(graphed) == graphed.graphs.size_bytes
    blocks = without.plan.device_blocks - graphed.plan.device_blocks
    taken = blocks * graphed.page.bytes_per_block
    assert abs(taken - graphed.graphs.size_bytes) <= graphed.page.bytes_per_block
    assert graphed.ledger.budget("device").left_bytes >= 0
    assert graphed.graphs.max_rows == 512  # larger steps wait for more than launches


@pytest.mark.parametrize("rows", [1, 7, 256])
def test_a_decode_takes_no_more_than_the_largest_step(rows: int) -> None:
    memory = StepMemory(SPEC, DType.FLOAT32)
    assert memory.logits_bytes(rows) < memory.decode_bytes(rows)
    assert memory.decode_bytes(rows) <= memory.largest_bytes(LargestStep(rows, rows))


def test_only_devices_that_have_graphs_get_them_unasked() -> None:
    emulated = Capacities(64 * MIB, 64 * MIB, real=False)
    assert plan(CONFIG, emulated).graphs is None
    asked = plan(replace(CONFIG, cuda_graphs="on"), emulated)
    assert asked.graphs is not None
    # nothing of a driver's in an emulated device
    assert asked.graphs.size_bytes < MIB


def test_layers_of_hybrid_steps_are_charged_where_the_host_may_have_a_part() -> None:
    device_only = plan(replace(CONFIG, strategy="gpu-only"), ROOMY)
    hybrid = plan(replace(CONFIG, strategy="ride-along"), ROOMY)
    assert device_only.graphs is not None
    assert hybrid.graphs is not None
    assert device_only.graphs.parts == ()
    assert hybrid.graphs.parts == resident_parts({}, SPEC.num_layers)
    more = hybrid.graphs.size_bytes - device_only.graphs.size_bytes
    # at most what is held from one attention to the next, and the driver's part of each graph: of
    # layers, and of whole steps of which the host has a part
    rows, memory = hybrid.graphs.max_rows, StepMemory(SPEC, DType.FLOAT32)
    assert more == memory.between_bytes(rows) + 2 * SPEC.num_layers * rows * 128 * KIB
    assert rows == 4, "a bucket for each number of rows"


def test_a_mixture_whose_tokens_are_counted_has_none_and_a_note_says_why() -> None:
    assert plan(CONFIG, ROOMY, MIXTURE).graphs is not None
    counted = replace(CONFIG, save_expert_hits="hits.json")
    memory = plan(counted, ROOMY, MIXTURE)
    assert memory.graphs is None
    assert memory.plan.notes[-1] == (
        "steps are launched one operation at a time: --save-expert-hits counts tokens, which a "
        "graph cannot tell from rows that pad it"
    )
    with pytest.raises(ConfigError, match="--cuda-graphs on cannot be: --save-expert") as error:
        plan(replace(counted, cuda_graphs="on"), ROOMY, MIXTURE)
    assert error.value.param == "cuda_graphs"


def test_a_mixture_has_none_without_kernels_that_take_its_experts_at_once() -> None:
    """Known beforehand: nothing is set aside for a recording that would fail."""
    without = replace(ROOMY, experts_at_once=False)
    assert plan(CONFIG, without).graphs is not None
    memory = plan(CONFIG, without, MIXTURE)
    assert memory.graphs is None
    assert charged_bytes(memory) == 0
    assert memory.plan.notes[-1] == (
        "steps are launched one operation at a time: without Triton a mixture's steps ask the host "
        "which experts were chosen"
    )
    with pytest.raises(ConfigError, match="--cuda-graphs on cannot be: without Triton"):
        plan(replace(CONFIG, cuda_graphs="on"), without, MIXTURE)


def test_a_mixture_s_experts_at_work_together_are_charged_up_to_a_bound() -> None:
    large = replace(SPEC, architecture="mixtral", experts=ExpertSpec(8, 2, 14_336))
    memory = StepMemory(large, DType.BFLOAT16)
    each = 2 * (4 * 14_336 * 2 + SPEC.hidden_size * 4)  # a token's, by its two experts
    assert memory.decode_bytes(4) - memory.decode_bytes(3) > each
    assert memory.decode_bytes(2000) - memory.decode_bytes(1000) < 1000 * each


def test_layers_stay_on_the_accelerator_rather_than_graphs() -> None:
    spec = replace(SPEC, num_layers=8)
    # room for all layers and some blocks, not for what a driver takes of graphs
    tight = replace(ROOMY, device_bytes=weight_bytes(spec, DType.FLOAT32) + 80 * MIB)
    memory = plan(CONFIG, tight, spec)
    assert memory.graphs is None
    assert set(homes_by_layer(memory.plan.weights).values()) == {"resident"}
    assert memory.plan.notes[-1].startswith("steps are launched one operation at a time: ")
    assert replace(memory.plan, notes=()) == replace(
        plan(replace(CONFIG, cuda_graphs="off"), tight, spec).plan, notes=()
    )
    with pytest.raises(ConfigError):
        plan(replace(CONFIG, cuda_graphs="on"), tight, spec)


EIGHT = replace(SPEC, num_layers=8)
_TURNS: tuple[Home, ...] = ("resident", "streamed") * 4


def placing(folder: Path, *homes: Home) -> EngineConfig:
    """Of eight layers, from the first on; on an emulated accelerator that has graphs unasked."""
    runs = [{"first_layer": n, "last_layer": n, "home": home} for n, home in enumerate(homes)]
    file = folder / "placement.json"
    file.write_text(json.dumps({"layers": runs}))
    return replace(CONFIG, placement=str(file), strategy="gpu-only")


def test_layers_that_stay_have_graphs_beside_those_that_come(tmp_path: Path) -> None:
    config, emulated = placing(tmp_path, *_TURNS), replace(ROOMY, real=False)
    memory = plan(config, emulated, EIGHT)
    without = plan(replace(config, cuda_graphs="off"), emulated, EIGHT)
    assert memory.plan.weights == without.plan.weights
    graphs = memory.graphs
    assert graphs is not None
    assert not graphs.whole
    assert graphs.parts == resident_parts(dict(enumerate(_TURNS)), 8)
    # no spare block, no inputs: what a step of so many rows takes, and what lies between layers
    sizes = StepMemory(EIGHT, DType.FLOAT32)
    assert graphs.size_bytes == sizes.decode_bytes(4) + sizes.between_bytes(4)
    assert charged_bytes(memory) == graphs.size_bytes
    assert not any("one operation at a time" in note for note in memory.plan.notes)


_ONE_BEHIND_ALL: tuple[Home, ...] = ("cpu",) * 7 + ("resident",)


@pytest.mark.parametrize("homes", [("streamed",) * 8, _ONE_BEHIND_ALL])
def test_without_a_layer_that_stays_behind_another_there_are_none(
    tmp_path: Path, homes: tuple[Home, ...]
) -> None:
    """A single one has nothing before it that rotates positions."""
    config, reason = placing(tmp_path, *homes), "no layer's weights stay on the accelerator behind"
    memory = plan(config, ROOMY, EIGHT)
    assert memory.graphs is None
    assert charged_bytes(memory) == 0
    assert reason in memory.plan.notes[-1]
    with pytest.raises(ConfigError, match=f"--cuda-graphs on cannot be: {reason}"):
        plan(replace(config, cuda_graphs="on"), ROOMY, EIGHT)


@pytest.mark.parametrize(("buckets", "told"), [((1,), "1 token"), ((1, 2), "1, 2 tokens")])
def test_what_is_recorded_of_layers_that_stay_is_told(buckets: tuple[int, ...], told: str) -> None:
    layers = SimpleNamespace(buckets=buckets, recording=Recording(None, 0.25))
    (note,) = recorded_notes(CONFIG, None, cast("LayerGraphs", layers))
    assert note == (
        "layers that stay on the accelerator, beside those that are elsewhere, are graphs of "
        f"{told}, recorded in 0.2 s"
    )


def test_no_weights_leave_the_accelerator_for_graphs_unless_they_are_asked_for(
    tmp_path: Path,
) -> None:
    fewer = plan(placing(tmp_path, *_TURNS), ROOMY, EIGHT)
    more = plan(replace(placing(tmp_path, *_TURNS[2:]), cuda_graphs="off"), ROOMY, EIGHT)
    chosen = with_graphs(CONFIG, EIGHT, ROOMY, lambda graphs: fewer if graphs else more)
    assert chosen.graphs is None
    assert chosen.plan.weights == more.plan.weights
    assert chosen.plan.notes[-1] == (
        "steps are launched one operation at a time: weights would have to leave the accelerator "
        "for graphs"
    )
    asked = replace(CONFIG, cuda_graphs="on")
    assert with_graphs(asked, EIGHT, ROOMY, lambda graphs: fewer if graphs else more) == fewer


def test_without_an_accelerator_there_is_nothing_to_launch() -> None:
    with pytest.raises(ConfigError, match="--cuda-graphs on has no meaning without an") as error:
        plan(replace(CONFIG, cuda_graphs="on"), Capacities(64 * MIB, 0, "host"))
    assert error.value.param == "cuda_graphs"


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown --cuda-graphs 'yes'; use one of: auto, on, off"):
        replace(CONFIG, cuda_graphs="yes")
