"""What torch is asked for when work is recorded: where it runs first, and whose memory it takes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
import torch

from tandem.devices.cuda import graphs
from tandem.devices.cuda.graphs import CudaGraphs

DEVICE = torch.device("cpu")  # so that tensors exist


class FakeGraph:
    """Counts replays, and what it was made to forget."""

    resets = 0

    def __init__(self) -> None:
        self.replays = 0

    def reset(self) -> None:
        FakeGraph.resets += 1

    def replay(self) -> None:
        self.replays += 1


class FakeCuda:
    """Notes what happens in order; each capture takes 10 of 1,000 bytes, torch's pool 7 of them."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.free = 1000
        self.reserved = 0
        self.pools = 0
        self.routed: set[int] = set()  # pools to which allocations of a capture go
        self.ends_itself = True  # a capture that fails
        self.current: list[object] = ["default"]

    def handle(self) -> int:
        self.pools += 1
        return self.pools

    @contextmanager
    def stream(self, stream: object) -> Iterator[None]:
        before = list(self.current)
        self.current.append(stream)
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def graph(self, graph: FakeGraph, **options: Any) -> Iterator[None]:
        assert isinstance(graph, FakeGraph)
        self.events.append(("capture", options))
        self.current.append(options["stream"])
        self.routed.add(options["pool"])
        try:
            yield
        except RuntimeError:
            if self.ends_itself:
                self.routed.remove(options["pool"])
            raise  # as torch's: what was current before is not made so again
        self.current.pop()
        self.routed.remove(options["pool"])
        self.free -= 10
        self.reserved += 7
        self.events.append("captured")

    def end_allocate(self, device: int | None, pool: int) -> None:
        if pool not in self.routed:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        self.routed.remove(pool)

    def empty_cache(self) -> None:
        assert not self.routed, "captures_underway.empty() INTERNAL ASSERT FAILED"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    made = FakeCuda()
    names = {
        "Stream": lambda device: "side",
        "graph_pool_handle": made.handle,
        "synchronize": lambda device: made.events.append("synchronize"),
        "empty_cache": made.empty_cache,
        "mem_get_info": lambda device: (made.free, 1000),
        "memory_reserved": lambda device: made.reserved,
        "CUDAGraph": FakeGraph,
        "stream": made.stream,
        "graph": made.graph,
    }
    for name, answer in names.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    name = "_cuda_endAllocateToPool"  # torch without CUDA has none
    monkeypatch.setattr(torch._C, name, made.end_allocate, raising=False)
    # an alias by address needs a device
    monkeypatch.setattr(graphs, "alias", lambda device, tensor: tensor.detach())
    return made


def test_work_runs_before_it_is_captured_on_the_same_stream(fake: FakeCuda) -> None:
    graphs = CudaGraphs(DEVICE)
    fake.events.clear()

    def work() -> torch.Tensor:
        fake.events.append(("work", fake.current[-1]))
        return torch.ones(3)

    replay, result = graphs.record(work)
    options = {"pool": 1, "stream": "side", "capture_error_mode": "thread_local"}
    assert fake.events == [
        "synchronize", ("work", "side"), "synchronize",
        ("capture", options), ("work", "side"), "captured",
    ]  # fmt: skip
    assert result.tolist() == [1, 1, 1]
    assert fake.current == ["default"]
    replay()


def test_all_graphs_share_one_pool_and_their_memory_is_told(fake: FakeCuda) -> None:
    graphs = CudaGraphs(DEVICE)
    assert graphs.taken_bytes() == 0
    for _ in range(3):
        graphs.record(lambda: torch.ones(1))
    pools = {
        event[1]["pool"]
        for event in fake.events
        if isinstance(event, tuple) and event[0] == "capture"
    }
    assert pools == {1}
    assert graphs.taken_bytes() == 30


@pytest.mark.parametrize("ends_itself", [True, False], ids=["torch 2.12", "torch 2.11"])
def test_after_a_capture_that_failed_memory_is_told_and_others_can_be_made(
    fake: FakeCuda, ends_itself: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.ends_itself = ends_itself
    graphs = CudaGraphs(DEVICE)
    monkeypatch.setattr(FakeGraph, "resets", 0)
    works = iter([torch.ones(1)])

    def work() -> torch.Tensor:
        done = next(works, None)
        if done is None:  # not the first time
            raise RuntimeError("operation not permitted when stream is capturing")
        return done

    with pytest.raises(RuntimeError, match="not permitted"):
        graphs.record(work)
    assert fake.current == ["default"]  # what follows must not be on a stream of its own
    assert FakeGraph.resets == 1
    assert graphs.taken_bytes() == 0
    graphs.record(lambda: torch.ones(1))
    assert graphs.taken_bytes() == 10


def test_inputs_come_from_memory_of_their_own_without_waiting(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[tuple[torch.Tensor, bool]] = []

    class Target:
        def copy_(self, source: torch.Tensor, *, non_blocking: bool) -> None:
            copied.append((source, non_blocking))

    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor.clone())
    host = torch.arange(3)
    CudaGraphs(DEVICE).bring(host, cast("torch.Tensor", Target()))
    host.zero_()  # it may be forgotten at once
    ((source, non_blocking),) = copied
    assert source.tolist() == [0, 1, 2]
    assert non_blocking


def test_what_others_take_and_give_back_before_and_between_does_not_count(fake: FakeCuda) -> None:
    graphs = CudaGraphs(DEVICE)
    for taken in (300, -500):
        fake.free -= taken
        graphs.record(lambda: torch.ones(1))
    assert graphs.taken_bytes() == 20


def test_what_others_give_back_at_that_moment_is_not_counted_below_nothing(fake: FakeCuda) -> None:
    graphs = CudaGraphs(DEVICE)
    works = iter([0, 100])

    def work() -> torch.Tensor:
        fake.free += next(works)
        return torch.ones(1)

    graphs.record(work)
    assert graphs.taken_bytes() == 7


def test_what_torch_takes_for_work_that_is_to_be_recorded_counts(fake: FakeCuda) -> None:
    graphs = CudaGraphs(DEVICE)
    fake.reserved, fake.free = 50, 950
    assert graphs.taken_bytes() == 50
