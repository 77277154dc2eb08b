"""NEO's code over a module of the same signatures."""

import asyncio
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
from benchmarks.gpu.cases import CaseError
from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.jobs import Asked
from benchmarks.gpu.neo_peer import MODELS, Neo, NeoSizes, find_library, find_neo

SIZES = NeoSizes(1600, 2 << 30, 3200, 8, 100, 512)
JOB = [Asked((1, 2, 3), 4), Asked((5,), 2)]


@dataclass
class EngineConfig:
    """Of a commit that has other settings, too."""

    model_path: str
    use_dummy: bool
    block_size: int
    num_gpu_blocks_override: int
    swap_space: int
    max_seqs_in_block_table: int
    max_blocks_per_seq: int
    library_path: str
    always_use_gpu: bool = False


@dataclass
class Request:
    prompt_token_ids: list[int]
    request_id: int
    max_output_len: int
    output_token_ids: list[int] = field(default_factory=list)
    finished_event: asyncio.Event = field(default_factory=asyncio.Event)


class Engine:
    """One token for each request in every turn of its loop; `fault` ends that."""

    made: ClassVar[list["Engine"]] = []
    fault: Exception | None = None

    def __init__(self, config: EngineConfig) -> None:
        self.config, self.waiting = config, list[Request]()
        Engine.made.append(self)

    async def initialize(self) -> None:
        self.scheduler = SimpleNamespace(on_requests_arrival=self.waiting.extend)

    async def start_all_event_loops(self) -> None:
        while True:
            await asyncio.sleep(0)
            if self.waiting and Engine.fault is not None:
                raise Engine.fault
            for request in list(self.waiting):
                request.output_token_ids.append(7)
                if len(request.output_token_ids) == request.max_output_len:
                    request.finished_event.set()
                    self.waiting.remove(request)


@pytest.fixture
def neo(monkeypatch: pytest.MonkeyPatch) -> Any:
    module, structs = ModuleType("swiftllm"), ModuleType("swiftllm.structs")
    vars(module).update(EngineConfig=EngineConfig, Engine=Engine)
    vars(structs)["create_request"] = Request
    monkeypatch.setitem(sys.modules, "swiftllm", module)
    monkeypatch.setitem(sys.modules, "swiftllm.structs", structs)
    monkeypatch.setattr(Engine, "made", [])
    monkeypatch.setattr(Engine, "fault", None)
    return module


def test_a_job_runs_to_its_end(neo: Any, tmp_path: Path) -> None:
    assert find_neo() is neo
    with Neo(neo, tmp_path, tmp_path / "libpacpu.so", SIZES) as engine:
        for _ in range(2):
            rate = engine.run(JOB, Deadline.after(60.0))
            assert (rate.tokens, rate.complete) == (6, True)
    (made,) = Engine.made
    config = made.config
    assert config.use_dummy
    assert (config.num_gpu_blocks_override, config.swap_space) == (100, 2)
    assert config.max_blocks_per_seq * config.block_size >= SIZES.longest
    assert not config.always_use_gpu


def test_what_goes_wrong_is_said(neo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Neo(neo, tmp_path, tmp_path, SIZES) as engine:
        with pytest.raises(CaseError, match="TimeoutError: a job took more than 0 s"):
            engine.run([Asked((1,), 1 << 30)], Deadline.after(0.0))
        monkeypatch.setattr(Engine, "fault", RuntimeError("no such kernel"))
        with pytest.raises(CaseError, match="RuntimeError: no such kernel"):
            engine.run(JOB, Deadline.after(60.0))
    monkeypatch.setattr(Engine, "initialize", None)
    with pytest.raises(CaseError, match="TypeError"):
        Neo(neo, tmp_path, tmp_path, SIZES)


def test_where_it_is_not_there_or_lacks_something(tmp_path: Path) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"no {name}", name=name)

    def broken(name: str) -> Any:
        raise ModuleNotFoundError("no ray", name="ray")

    assert find_neo(missing) is None
    with pytest.raises(CaseError, match="swiftllm cannot be imported: no ray"):
        find_neo(broken)
    places = {"NEO_LIBRARIES": str(tmp_path)}
    with pytest.raises(CaseError, match="name its folder by NEO_LIBRARIES"):
        find_library("llama-2-7b", places)
    for name in ("libpacpu.so", "libpacpu-llama2_7b-tp1.so"):  # the model's own before all
        (tmp_path / name).write_text("")
        assert find_library("llama-2-7b", places) == tmp_path / name
    assert set(MODELS) == {"llama-2-7b", "llama-3.1-8b"}
