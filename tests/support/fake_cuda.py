"""A GPU whose memory is the host's and whose streams do everything at once.

The engine's CUDA path over it is the real one: its driver with a thread per queue, events, counters
that streams raise, pinned staging memory. What only a GPU does is left out: nothing is ever under
way when the next operation is launched, and graphs are torch's operations with their arguments. So
are layers, as on a GPU: the CPU's compiled kernels are not taken, though the memory is the host's.
"""

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from tandem.devices import stream_counters
from tandem.devices.cuda import driver, graphs, probe
from tandem.engine.building import blocks, parts, target, warm_up
from tandem.models import load
from tandem.models.model import Model
from tandem.runtime import assemble_cuda, build_machine
from tandem.runtime.frozen_ops import FrozenOps
from tandem.spec.config import EngineConfig

_DEVICE = torch.device("cpu")
_FREE_BYTES, _MEASURED_BYTES = 2 << 30, 16 << 20


@dataclass(eq=False)
class _Event:
    """Reached as soon as it is recorded."""

    enable_timing: bool = False
    blocking: bool = False
    reached_s: float = 0.0

    def record(self, stream: "_Stream") -> None:
        self.reached_s = time.perf_counter()

    def synchronize(self) -> None:
        assert self.reached_s

    def elapsed_time(self, end: "_Event") -> float:
        return (end.reached_s - self.reached_s) * 1e3


@dataclass(eq=False)
class _Stream:
    """Does what it is given at once; waits for counters keep it from being idle."""

    cuda_stream: int = 0
    awaited: list[tuple[int, int]] = field(default_factory=list)

    def wait_event(self, event: _Event) -> None:
        assert event.reached_s

    def synchronize(self) -> None:
        """Nothing is under way."""

    def query(self) -> bool:
        return all(_is_reached(*point) for point in self.awaited)


class _Library:
    """The driver's functions on counters, which want a context on the calling thread.

    A queue's thread waits in the place of its stream, which would then do nothing; of another
    thread's stream it is noted.
    """

    def __init__(self, fake: "FakeCuda") -> None:
        def write(stream: int, address: int, value: int, flags: int) -> int:
            fake.written.append(value)
            ctypes.c_uint32.from_address(address).value = value
            return 0

        def wait(stream: int, address: int, value: int, flags: int) -> int:
            fake.made[stream].awaited.append((address, value))
            if threading.current_thread().name.startswith("tandem-"):
                fake.stood += 1
                while not _is_reached(address, value):
                    time.sleep(0)
            return 0

        self.cuStreamWriteValue32_v2 = _Function(write)
        self.cuStreamWaitValue32_v2 = _Function(wait)


def _is_reached(address: int, value: int) -> bool:
    return (ctypes.c_uint32.from_address(address).value - value) & 0xFFFFFFFF < 1 << 31


class _Function:
    """Takes the declarations that `ctypes` functions take."""

    argtypes: object = None
    restype: object = None

    def __init__(self, call: Callable[..., int]) -> None:
        self._call = call

    def __call__(self, *arguments: int) -> int:
        return self._call(*arguments)


class _Graph:
    """What was captured, done again."""

    def __init__(self) -> None:
        self.work = FrozenOps()

    def replay(self) -> None:
        with torch.inference_mode():  # what lies there may have been made within it
            self.work.replay()

    def capture_begin(self, pool: int, capture_error_mode: str) -> None:
        assert pool
        assert capture_error_mode == "thread_local"
        self.work.__enter__()

    def capture_end(self) -> None:
        self.work.__exit__(None, None, None)
        _require_none_refused(self.work)


@contextmanager
def _capture(
    graph: _Graph, *, pool: int, stream: _Stream, capture_error_mode: str
) -> Iterator[None]:
    """As `torch.cuda.graph` is called.

    Raises:
        RuntimeError: a number on the device was asked for.
    """
    assert pool
    assert stream.cuda_stream, "the default stream cannot be captured"
    assert capture_error_mode == "thread_local"
    with graph.work:
        yield
    _require_none_refused(graph.work)


def _require_none_refused(work: FrozenOps) -> None:
    if work.refused:
        raise RuntimeError(f"the host is asked by {', '.join(sorted(set(work.refused)))}")


@dataclass
class FakeCuda:
    """What was asked of it.

    Attributes:
        pinned: bytes of staging memory, each time. registered: of host memory made known, as long
            as it is. most_registered: bytes of it, at once. written: values of counters.
        emptied: times that the allocator gave back what nobody uses.
        stood: times that a queue's stream waited for a counter. uploads: tensors that came by the
            driver. sync_modes: what becomes of operations that wait. made: streams by handle.
    """

    pinned: list[int] = field(default_factory=list)
    registered: dict[int, int] = field(default_factory=dict)
    written: list[int] = field(default_factory=list)
    most_registered: int = 0
    emptied: list[bool] = field(default_factory=list)
    uploads: int = 0
    sync_modes: list[str] = field(default_factory=list)
    stood: int = 0
    made: dict[int, _Stream] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def stream(self, device: torch.device) -> _Stream:
        made = _Stream(len(self.made) + 1)
        self.made[made.cuda_stream] = made
        return made

    def pinned_bytes(self, size_bytes: int, node: int | None) -> Tensor:
        self.pinned.append(size_bytes)
        return torch.full((size_bytes,), 0xFF, dtype=torch.uint8)  # not a number, if it is read

    def pin(self, tensor: Tensor) -> Callable[[], None]:
        address = tensor.data_ptr()
        assert address not in self.registered
        self.registered[address] = tensor.nbytes
        self.most_registered = max(self.most_registered, sum(self.registered.values()))
        return lambda: self._forget(address)

    def _forget(self, address: int) -> None:
        del self.registered[address]

    def record_stream(self, tensor: Tensor, stream: _Stream) -> None:
        assert isinstance(stream, _Stream)
        with self.lock:
            self.uploads += 1


def _load_for_gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Model]:
    """`load_reported`, of a model whose stages are torch's where the engine asks for CUDA."""
    load_reported = parts.load_reported

    def loaded(directory: Path, config: EngineConfig, *given: Any, **named: Any) -> Model:
        with monkeypatch.context() as patched:
            if config.accelerator == "cuda":
                patched.setattr(load, "native_stages", lambda *given, **named: None)
            return load_reported(directory, config, *given, **named)

    return loaded


def install(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """Until the test ends, `--accelerator cuda` is this."""
    fake, default = FakeCuda(), _Stream()
    properties = SimpleNamespace(name="stand-in", major=9, minor=0, total_memory=_FREE_BYTES)
    answers = {
        "Event": _Event,
        "Stream": fake.stream,
        "default_stream": lambda device: default,
        "stream": lambda stream: nullcontext(),
        "set_device": lambda device: None,
        "set_stream": lambda stream: None,
        "set_sync_debug_mode": fake.sync_modes.append,
        "synchronize": lambda device=None: None,
        "is_initialized": lambda: True,
        "empty_cache": lambda: fake.emptied.append(True),
        "graph_pool_handle": lambda: 1,
        "CUDAGraph": _Graph,
        "graph": _capture,
        "reset_peak_memory_stats": lambda device: None,
        "memory_allocated": lambda device: 0,
        "memory_reserved": lambda device: 0,
        "max_memory_allocated": lambda device: _MEASURED_BYTES,
        "max_memory_reserved": lambda device: _MEASURED_BYTES,
        "mem_get_info": lambda device: (_FREE_BYTES, _FREE_BYTES),
        "get_device_properties": lambda device: properties,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    monkeypatch.setattr(Tensor, "record_stream", lambda *given: fake.record_stream(*given))
    monkeypatch.setattr(target, "cuda_available", lambda: True)
    monkeypatch.setattr(target, "open_cuda", lambda index: _DEVICE)
    for module in (parts, blocks):
        monkeypatch.setattr(module, "load_reported", _load_for_gpu(monkeypatch))
    for module in (warm_up, assemble_cuda):
        monkeypatch.setattr(module, "pin", fake.pin)
    for module in (driver, build_machine, assemble_cuda, probe):
        monkeypatch.setattr(module, "pinned_bytes", fake.pinned_bytes)
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: tensor.clone())
    # an alias by address needs a device
    monkeypatch.setattr(graphs, "alias", lambda device, tensor: tensor.detach())
    monkeypatch.setattr(assemble_cuda, "as_seen_by", lambda device, tensor: tensor)
    monkeypatch.setattr(stream_counters.StreamCounters.__init__, "__defaults__", (_Library(fake),))
    return fake
