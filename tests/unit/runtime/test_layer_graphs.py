"""Graphs of layers: which are recorded, which memory they use, and what is too large for them."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tests.support.engines import model_engine, tiny_model
from tests.support.script import run_all
from tests.support.setups import Setup
from torch import Tensor

from tandem.models.layer_state import LayerState
from tandem.plan.layer_launches import resident_parts
from tandem.runtime.arena import Arena
from tandem.runtime.buffers import BufferSpace
from tandem.runtime.graph_maker import EmulatedGraphs, GraphError
from tandem.runtime.layer_graphs import LayerGraphs
from tandem.runtime.layer_memory import LayerMemory
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

LAYERS = 3
PARTS = resident_parts({}, LAYERS)


class Forgetful(EmulatedGraphs):
    """Does nothing again, of the third recording on."""

    def __init__(self) -> None:
        self._count = 0

    def record(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        self._count += 1
        return super().record(work) if self._count < 3 else ((lambda: None), work())


class Hungry(EmulatedGraphs):
    """Each graph takes a thousand bytes, and others have taken two thousand before."""

    def __init__(self) -> None:
        self._taken = 2000

    def record(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        self._taken += 1000
        return super().record(work)

    def taken_bytes(self) -> int:
        return self._taken


def recorded(
    maker: EmulatedGraphs, limit_s: float = 60.0, limit_bytes: int = 1 << 30
) -> LayerGraphs:
    buffers = BufferSpace(Arena())
    graphs = LayerGraphs(tiny_model(num_layers=LAYERS), buffers, PARTS, (1, 2, 4), maker)
    graphs.record(limit_s, limit_bytes)
    return graphs


def test_every_number_of_tokens_is_recorded() -> None:
    graphs = recorded(EmulatedGraphs())
    assert graphs.buckets == (1, 2, 4)
    assert graphs.recording.problem is None


def test_a_layer_that_does_not_do_what_its_operations_do_is_not_used() -> None:
    graphs = recorded(Forgetful())
    assert graphs.buckets == ()
    assert graphs.recording.problem is not None
    assert graphs.recording.problem.startswith("a graph's layer 2's results are ")


def test_memory_ends_recording_whoever_has_taken_it() -> None:
    graphs = recorded(Hungry(), limit_bytes=4999)
    assert graphs.buckets == (4,)
    assert graphs.recording.problem == "graphs, or others at that moment, took more than 4.9 KiB"
    assert graphs.recording.taken_bytes == 2000 + LAYERS * 1000
    assert recorded(Hungry(), limit_bytes=1999).buckets == ()


def test_time_ends_recording_before_it_is_over() -> None:
    graphs = recorded(EmulatedGraphs(), limit_s=1e-9)
    assert graphs.buckets == (4,)
    assert graphs.recording.problem == "recording more would take longer than 0 s"
    # another kind of graphs has taken all of it
    assert recorded(EmulatedGraphs(), limit_s=0.0).buckets == ()


@pytest.mark.parametrize("fails_to_record", [False, True])
def test_memory_is_that_of_the_largest_number_of_tokens_for_which_there_is_some(
    fails_to_record: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = list[int]()
    allocate = LayerGraphs._allocate

    def narrow(self: LayerGraphs, rows: int) -> LayerMemory:
        sizes.append(rows)
        if rows > 4 and not fails_to_record:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return allocate(self, rows)

    class Narrow(EmulatedGraphs):
        def record(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
            replay, residual = super().record(work)
            if len(residual) > 4:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return replay, residual

    monkeypatch.setattr(LayerGraphs, "_allocate", narrow)
    model = tiny_model(num_layers=LAYERS)
    graphs = LayerGraphs(model, BufferSpace(Arena()), PARTS, (1, 2, 3, 4, 6, 8), Narrow())
    graphs.record(60.0, 1 << 30)
    assert graphs.buckets == (1, 2, 3, 4)
    assert sizes == [8, 6, 4]
    memory = graphs._memory
    assert memory is not None
    assert len(memory.residual) == 4


def run_of(setup: Setup) -> tuple[list[list[int]], int]:
    """Tokens of some requests, and layers that were replayed."""
    params = SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True)
    requests = [EngineRequest(str(i), tuple(range(1, 20 + i)), params) for i in range(3)]
    with model_engine(tiny_model(num_layers=LAYERS), setup) as engine:
        results = run_all(engine.core, requests)
        graphs = engine.machine.runner.layer_graphs
        replayed = 0 if graphs is None else graphs.num_replayed
    return [results[request.request_id].token_ids for request in requests], replayed


def test_steps_of_more_tokens_than_any_bucket_are_launched_as_operations() -> None:
    setup = Setup("ride-along", host_blocks=32, kv_placement="host", executor="exact")
    expected, none = run_of(setup)
    tokens, replayed = run_of(replace(setup, graphs=True, max_num_seqs=3))
    assert tokens == expected
    assert none == 0
    # prompts first, together: 8 tokens each come of 7 steps that decode
    assert replayed == 7 * LAYERS


def test_without_a_host_there_are_none() -> None:
    with model_engine(tiny_model(), Setup(executor="exact", graphs=True)) as engine:
        assert engine.machine.runner.layer_graphs is None


def state(tokens: int, start: float = 0.0) -> LayerState:
    """Between PRE and attention, with numbers of its own."""

    def numbers(*shape: int) -> Tensor:
        count = tokens * torch.Size(shape).numel()
        return torch.arange(start, start + count).view(tokens, *shape)

    made = LayerState(torch.arange(tokens), numbers(6))
    made.q, made.k, made.v = numbers(2, 4), numbers(1, 4), numbers(1, 4)
    made.rotations = ((numbers(1, 4), numbers(1, 4)),)
    return made


def attended(tokens: int, start: float) -> LayerState:
    made = state(tokens, start)
    made.finish_attention(torch.full((tokens, 2, 4), start))
    return made


def test_states_come_one_behind_the_other() -> None:
    memory = LayerMemory.like(state(8))
    first, second = attended(3, 100.0), attended(2, 200.0)
    parts = memory.bring([first, second])
    assert [len(part.residual) for part in parts] == [3, 2]
    assert torch.equal(memory.residual[:5], torch.cat([first.residual, second.residual]))
    assert memory.attention[2, 0, 0] == 100.0
    assert memory.attention[3, 0, 0] == 200.0
    assert torch.equal(memory.rotations[0][1][3:5], second.rotations[0][1])


def test_states_that_change_places_do_not_overwrite_each_other() -> None:
    memory = LayerMemory.like(state(8))
    parts = memory.bring([attended(3, 100.0), attended(2, 200.0)])
    first, second = (part.state_of(torch.arange(8), computed=False) for part in parts)
    before = first.residual.clone(), second.residual.clone()
    for each in (first, second):
        each.positions = each.positions[: len(each.residual)]
        each.finish_attention(torch.zeros(len(each.residual), 2, 4))
    memory.bring([second, first])
    assert torch.equal(memory.residual[:2], before[1])
    assert torch.equal(memory.residual[2:5], before[0])


def test_what_a_layer_keeps_beside_queries_keys_and_values_is_refused() -> None:
    made = state(2)
    made.x = made.residual
    with pytest.raises(GraphError, match="a layer keeps x through attention"):
        LayerMemory.like(made)
