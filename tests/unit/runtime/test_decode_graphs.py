"""Which steps are launched as one, how they are padded, and what happens where none can be."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.support.engines import TestEngine, model_engine, tiny_model
from tests.support.script import run_all
from tests.support.setups import Setup
from torch import Tensor

from tandem.kernels.sampling import Likeliest, SampledTokens
from tandem.memory.page import KVPageSpec
from tandem.plan.binding import LaneBinding, SamplingRows, TierAppend, TierAttention
from tandem.runtime import sampling_ops
from tandem.runtime.build_machine import GraphRoom, MachineSizes, build_machine
from tandem.runtime.decode_graphs import DecodeGraphs
from tandem.runtime.decode_inputs import DecodeArrays
from tandem.runtime.graph_maker import EmulatedGraphs
from tandem.runtime.machine import Machine
from tandem.runtime.record_graphs import record_graphs
from tandem.spec.dtype import DType
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams
from tandem.spec.tier import Tier

SETUP = Setup(executor="exact", graphs=True, device_blocks=40, max_num_seqs=6)
SPARE, SIZE = 9, 16


def decoding(positions: list[int]) -> LaneBinding:
    """A row at each position, whose blocks are 0, 1, ...; tables hold another row's further on."""
    rows = len(positions)
    table = np.arange(rows * 4, dtype=np.int32).reshape(rows, 4) % SPARE
    return LaneBinding(
        rows=np.arange(rows, dtype=np.int32),
        token_ids=np.full(rows, -1, dtype=np.int64),
        token_rows=np.arange(rows, dtype=np.int64) + 3,
        positions=np.array(positions, dtype=np.int32),
        attention={
            Tier.DEVICE: TierAttention(
                None,
                np.arange(rows + 1, dtype=np.int32),
                rows,
                np.array(positions, dtype=np.int32),
                table,
                None,
            )
        },
        append={Tier.DEVICE: TierAppend(None, np.arange(rows, dtype=np.int64) + 50)},
        logits_index=np.arange(rows, dtype=np.int64),
    )


def test_rows_that_pad_a_step_are_in_the_spare_block_alone() -> None:
    arrays = DecodeArrays.of(decoding([3, 40]), 4, SPARE, SIZE)
    assert (arrays.rows, arrays.bucket) == (2, 4)
    ids, places, positions, slots = arrays.numbers.tolist()
    assert ids == [-1, -1, 0, 0]
    assert places == [3, 4, 0, 0]
    assert positions == [3, 40, 0, 0]
    assert slots == [50, 51, SPARE * SIZE, SPARE * SIZE]
    # a row has as many blocks as its position needs; nothing else of its table is meant
    assert arrays.table.tolist() == [
        [0, SPARE, SPARE],
        [4, 5, 6],
        [SPARE, SPARE, SPARE],
        [SPARE, SPARE, SPARE],
    ]


def test_a_step_s_numbers_are_its_own() -> None:
    binding = decoding([3, 40])
    arrays = DecodeArrays.of(binding, 2, SPARE, SIZE)
    binding.attention[Tier.DEVICE].block_table[:] = 7  # as a later step may
    assert arrays.table.tolist() == [[0, SPARE, SPARE], [4, 5, 6]]


def graphs_of(engine: TestEngine) -> DecodeGraphs:
    graphs = engine.machine.runner.graphs
    assert graphs is not None
    return graphs


def tokens(
    engine: TestEngine, lengths: tuple[int, ...], temperature: float = 0.0
) -> list[list[int]]:
    requests = [
        EngineRequest(
            str(i),
            tuple((5 * i + 3 * j) % 64 for j in range(length)),
            SamplingParams(max_tokens=20 + 3 * i, temperature=temperature, seed=i, ignore_eos=True),
        )
        for i, length in enumerate(lengths)
    ]
    results = run_all(engine.core, requests)
    return [results[request.request_id].token_ids for request in requests]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("overlap", [True, False])
def test_steps_of_every_number_of_rows_give_the_tokens_of_operations(
    overlap: bool, temperature: float
) -> None:
    lengths = (5, 30, 17, 1, 44)
    setup = replace(SETUP, overlap=overlap)
    with model_engine(tiny_model(), replace(setup, graphs=False)) as engine:
        expected = tokens(engine, lengths, temperature)
    with model_engine(tiny_model(), setup) as engine:
        assert tokens(engine, lengths, temperature) == expected
        engine.check_idle()
        graphs = graphs_of(engine)
    assert graphs.buckets == (1, 2, 3, 4, 5, 6)
    assert graphs.num_replayed > 20


def test_only_steps_that_decode_on_the_accelerator_alone_are_taken() -> None:
    setup = replace(SETUP, strategy="ride-along", host_blocks=40, kv_placement="split")
    with model_engine(tiny_model(), setup) as engine:
        tokens(engine, (30, 40))
        assert graphs_of(engine).num_replayed == 0


class Forgetful(EmulatedGraphs):
    """Does nothing again."""

    def __init__(self) -> None:
        self.attempts = 0

    def record(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        self.attempts += 1
        return (lambda: None), work()


class Hungry(EmulatedGraphs):
    """Each graph takes a thousand bytes."""

    def __init__(self) -> None:
        self._taken = 0

    def record(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        self._taken += 1000
        return super().record(work)

    def taken_bytes(self) -> int:
        return self._taken


@contextmanager
def recorded(
    maker: EmulatedGraphs, limit_s: float = 60.0, limit_bytes: int = 1 << 30
) -> Iterator[DecodeGraphs]:
    model = tiny_model()
    page = KVPageSpec.of_model(model.spec, dtype=DType.FLOAT32, block_size=16)
    room = GraphRoom(max_rows=8, max_blocks=4, limit_s=limit_s, limit_bytes=limit_bytes)
    machine: Machine = build_machine(
        model, MachineSizes(page, 8, 0, max_rows=8, graphs=room), lambda tensor: tensor
    )
    record_graphs(machine, model, room, 16, maker)
    graphs = machine.runner.graphs
    assert graphs is not None
    yield graphs


def test_a_graph_that_does_not_do_what_its_operations_do_is_not_used() -> None:
    maker = Forgetful()
    with recorded(maker) as graphs:
        assert graphs.buckets == ()
        assert maker.attempts == 1  # at other sizes it would be as wrong
        assert graphs.recording.problem is not None
        assert "logits are" in graphs.recording.problem


class Choiceless(EmulatedGraphs):
    """Tells when it records."""

    records = False

    def record(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        self.records = True
        try:
            return super().record(work)
        finally:
            self.records = False


def test_a_graph_that_chooses_no_tokens_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    maker, find = Choiceless(), Likeliest.find

    def forgotten(likeliest: Likeliest, logits: Tensor) -> None:
        if not maker.records:
            find(likeliest, logits)

    monkeypatch.setattr(Likeliest, "find", forgotten)
    with recorded(maker) as graphs:
        assert graphs.buckets == ()
        problem = "a graph's tokens are not the likeliest of its logits"
        assert graphs.recording.problem == problem


class Narrow(EmulatedGraphs):
    """Has no memory for a graph of more rows than some; what it took nevertheless it keeps."""

    def __init__(self, most_rows: int, kept_bytes: int = 0, failure: str = "") -> None:
        self._most_rows, self._kept_bytes, self._taken = most_rows, kept_bytes, 0
        self._failure = failure
        self.attempts: list[int] = []

    def record(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        replay, logits = super().record(work)
        self.attempts.append(len(logits))
        if len(logits) > self._most_rows:
            self._taken += self._kept_bytes
            self._fail()
        return replay, logits

    def _fail(self) -> None:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory")
        finally:
            if self._failure:  # as of a capture that cannot be ended
                raise RuntimeError(self._failure)

    def taken_bytes(self) -> int:
        return self._taken


@pytest.mark.parametrize(
    ("most_rows", "attempts"),
    [
        (1, [8, 6, 4, 3, 2, 1]),
        (3, [8, 6, 4, 3, 1, 2]),
        (4, [8, 6, 4, 1, 3, 2]),
        (6, [8, 6, 1, 4, 3, 2]),
    ],
)
def test_without_memory_for_large_graphs_all_smaller_ones_are_recorded(
    most_rows: int, attempts: list[int]
) -> None:
    maker = Narrow(most_rows)
    with recorded(maker) as graphs:
        assert graphs.buckets == tuple(size for size in (1, 2, 3, 4, 6, 8) if size <= most_rows)
        assert graphs.recording.problem == "CUDA out of memory"
        assert maker.attempts == attempts


def test_what_graphs_that_failed_left_behind_is_room_for_others() -> None:
    with recorded(Narrow(4, kept_bytes=3000), limit_bytes=2500) as graphs:
        assert graphs.buckets == (1, 2, 3, 4)
        assert graphs.recording.taken_bytes == 6000


def test_memory_that_ran_out_while_a_capture_fails_is_seen() -> None:
    with recorded(Narrow(4, failure="capture invalidated")) as graphs:
        assert graphs.buckets == (1, 2, 3, 4)
        assert graphs.recording.problem == "capture invalidated"


class Unable(EmulatedGraphs):
    """Cannot record anything."""

    def __init__(self) -> None:
        self.attempts = 0

    def record(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        self.attempts += 1
        raise RuntimeError("operation not permitted when stream is capturing")


def test_what_cannot_be_recorded_is_not_tried_at_other_sizes() -> None:
    maker = Unable()
    with recorded(maker) as graphs:
        assert graphs.buckets == ()
        assert maker.attempts == 1


def test_greedy_tokens_are_chosen_within_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    sample, sampled = sampling_ops.sample, list[int]()

    def noted(logits: Tensor, rows: SamplingRows) -> SampledTokens:
        sampled.append(len(rows.rows))
        return sample(logits, rows)

    monkeypatch.setattr(sampling_ops, "sample", noted)
    counts = list[int]()
    for graphs, temperature in ((False, 0.0), (True, 0.0), (True, 0.8)):
        sampled.clear()
        with model_engine(tiny_model(), replace(SETUP, graphs=graphs)) as engine:
            tokens(engine, (5, 30, 17), temperature)
            counts.append(len(sampled))
            if graphs and not temperature:
                assert counts[-1] + graphs_of(engine).num_replayed == counts[0]
    assert counts[1] < counts[0] == counts[2]  # drawn ones follow the graph


def test_memory_ends_recording_and_steps_are_padded_further() -> None:
    with recorded(Hungry(), limit_bytes=2500) as graphs:
        assert graphs.buckets == (1, 6, 8)  # a row by itself is not padded
        assert (
            graphs.recording.problem == "graphs, or others at that moment, took more than 2.4 KiB"
        )


def test_time_ends_recording_but_not_before_the_first() -> None:
    with recorded(EmulatedGraphs(), limit_s=0.0) as graphs:
        assert graphs.buckets == (8,)
        assert graphs.recording.problem == "recording more would take longer than 0 s"


def test_what_a_graph_leaves_behind_is_nobody_s() -> None:
    model = tiny_model()
    page = KVPageSpec.of_model(model.spec, dtype=DType.FLOAT32, block_size=16)
    room = GraphRoom(max_rows=4, max_blocks=4, limit_s=60.0, limit_bytes=1 << 30)
    sizes = MachineSizes(page, 8, 0, max_rows=8, graphs=room)
    machine = build_machine(model, sizes, lambda tensor: tensor)
    before = machine.kv.size_bytes(Tier.DEVICE)
    record_graphs(machine, model, room, 16, EmulatedGraphs())
    assert machine.arena.live_bytes == 0
    assert machine.kv.size_bytes(Tier.DEVICE) == before == 8 * page.bytes_per_block
    assert machine.kv.spare_bytes(Tier.DEVICE) == page.bytes_per_block
    pages = machine.kv._pages[Tier.DEVICE]
    assert not pages[:, :8].any(), "only the spare block is written"
    assert pages[:, 8].any()
    assert torch.isfinite(pages).all()
