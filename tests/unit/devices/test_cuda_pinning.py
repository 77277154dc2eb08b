"""Pinned host memory: exactly the pool's bytes, registered once, given back at the end."""

import gc
from dataclasses import dataclass, field
from typing import cast

import pytest
import torch
from tests.support.engines import tiny_model

from tandem.devices.cuda.memory import pin
from tandem.engine.core import EngineCore
from tandem.engine.stats_collector import StatsCollector
from tandem.memory.page import KVPageSpec
from tandem.memory.pool import BlockPool
from tandem.runtime.build_machine import MachineSizes, build_machine
from tandem.runtime.inline import InlineExecutor
from tandem.runtime.kv_store import KVStore
from tandem.scheduler.config import SchedulerConfig
from tandem.scheduler.scheduler import Scheduler
from tandem.scheduler.strategies.gpu_only import GpuOnly
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.tier import Tier

PAGE_BYTES = 4096
CPU = torch.device("cpu")


@dataclass
class FakeRuntime:
    """CUDA's runtime as far as pinning needs it; `error` is what every call returns."""

    error: int = 0
    registered: dict[int, int] = field(default_factory=dict)

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:
        assert flags == 0
        if self.error == 0:
            assert address not in self.registered
            self.registered[address] = size
        return self.error

    def cudaHostUnregister(self, address: int) -> int:
        if self.error == 0:
            del self.registered[address]
        return self.error


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    fake = FakeRuntime()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: fake)
    return fake


def store(host_blocks: int, pinned: int | None = None) -> KVStore:
    page = KVPageSpec.of_model(tiny_model().spec, dtype=DType.FLOAT32, block_size=16)
    blocks = {Tier.DEVICE: 3, Tier.HOST: host_blocks}
    return KVStore(page, blocks, dict.fromkeys(Tier, CPU), pin=pin, pinned_blocks=pinned)


def test_the_host_pool_is_pinned_as_it_is_and_not_rounded_up(runtime: FakeRuntime) -> None:
    kv = store(host_blocks=33)
    size = kv.size_bytes(Tier.HOST)
    assert size & (size - 1), "a power of two would hide rounding"
    ((address, registered),) = runtime.registered.items()
    assert registered == size
    assert address % PAGE_BYTES == 0
    pages = kv._pages[Tier.HOST]
    assert pages.data_ptr() == address
    assert pages.untyped_storage().nbytes() == size
    assert not pages.any()
    kv.close()
    assert runtime.registered == {}
    kv.close()


def test_of_blocks_that_come_in_passes_each_layer_s_first_are_pinned(runtime: FakeRuntime) -> None:
    kv = store(host_blocks=33, pinned=5)
    layers = kv._pages[Tier.HOST]
    assert runtime.registered == {layer.data_ptr(): layer[:5].nbytes for layer in layers}
    assert kv.pinned_bytes == sum(runtime.registered.values()) == 5 * layers.nbytes // 33
    kv.close()
    assert runtime.registered == {}
    assert kv.pinned_bytes == 0
    store(host_blocks=33, pinned=0).close()
    assert runtime.registered == {}


def test_no_host_pool_pins_nothing(runtime: FakeRuntime) -> None:
    kv = store(host_blocks=0)
    assert runtime.registered == {}
    kv.close()


def test_a_refusal_of_the_driver_is_a_clear_error(
    runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is nobody else's: the runtime keeps it until torch asks, behind its next kernel."""

    def ones(size: int, device: str) -> None:
        blamed.append(device)
        raise RuntimeError("CUDA error: out of memory")

    blamed: list[str] = []
    monkeypatch.setattr(torch, "ones", ones)
    runtime.error = 2
    with pytest.raises(ConfigError, match=r"cannot pin 66.0 KiB .*\(2\); lower --cpu-memory") as e:
        store(host_blocks=33)
    assert e.value.param == "cpu_memory"
    assert blamed == ["cuda"]


def test_memory_that_is_freed_is_unpinned_before(runtime: FakeRuntime) -> None:
    """Of an engine that did not come to be nobody closes anything; the next one's memory may lie at
    the same place, which the driver would call registered already.
    """
    kv = store(host_blocks=33)
    part = kv._pages[Tier.HOST][0, :2]
    assert len(runtime.registered) == 1
    del kv
    gc.collect()
    assert len(runtime.registered) == 1, "a part of it is in use"
    del part
    gc.collect()
    assert runtime.registered == {}


def test_memory_is_unpinned_when_the_executor_has_stopped(
    runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model()
    page = KVPageSpec.of_model(model.spec, dtype=DType.FLOAT32, block_size=16)
    sizes = MachineSizes(page, 4, 5, max_rows=2)
    machine = build_machine(model, sizes, lambda tensor: tensor, pin=pin)
    stopped: list[int] = []
    executor = InlineExecutor(machine)
    monkeypatch.setattr(executor, "close", lambda: stopped.append(len(runtime.registered)))
    config = SchedulerConfig(num_layers=2, max_model_len=64, block_size=16)
    pools = {tier: BlockPool(tier, 4) for tier in Tier}
    scheduler = Scheduler(config, GpuOnly(), pools, vocab_size=64)
    core = EngineCore(scheduler, executor, cast(StatsCollector, None), release=machine.kv.close)
    core.close()
    assert stopped == [1]
    assert runtime.registered == {}
