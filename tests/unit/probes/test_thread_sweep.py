"""Threads on the CPU, alone and while the link is busy."""

import threading

import pytest
import torch
from tests.support.fake_cuda import install

from tandem.kernels import native

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tandem.devices.cuda import probe
from tandem.kernels.native_pool import NativePool
from tandem.models.linear import dequantize, multiply_codes
from tandem.probes import thread_sweep
from tandem.probes.accelerator import copy_to_device
from tandem.probes.contention import Load
from tandem.probes.effort import Effort
from tandem.probes.kernel_cases import HeadShape
from tandem.probes.linear_cases import FLOAT16
from tandem.probes.thread_sweep import sweep_threads
from tandem.probes.timing import Sample
from tandem.probes.torch_accelerator import CodeMaths, TorchAccelerator
from tandem.probes.walked_memory import WalkedMemory
from tandem.profiling.measurements import ThreadPoint, ThreadRates
from tandem.spec.dtype import DType

TINY = Effort(
    rounds=2,
    kinds=(FLOAT16,),
    sides=(64,),
    rows=(1,),
    heads=HeadShape(4, 2, 32),
    kv=(DType.FLOAT16,),
    batches=(2,),
    contexts=(100,),
    memory_bytes=1 << 20,
    link_bytes=(4096, 1 << 20),
    disk_bytes=64 << 20,
    trips=1,
)
KV_BYTES, WEIGHT_BYTES = 2 * 100 * 2 * 2 * 32 * 2, 64 * 64 * 2


def swept(link: Load | None) -> tuple[ThreadPoint, ...]:
    return sweep_threads(3, TINY, WalkedMemory(1 << 20), WalkedMemory(1 << 20), link)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work takes a second by one thread alone, and two by any number beside something else."""
    alone = threading.active_count()

    def working(pool: NativePool, *given: object) -> Sample:
        del given
        busy = 2.0
        return lambda _: busy if threading.active_count() > alone else 1.0 / pool.num_threads

    for name in ("reading", "attending", "multiplying"):
        monkeypatch.setattr(thread_sweep, name, working)


@pytest.mark.usefixtures("told")
def test_rates_beside_the_link_are_those_while_it_copies() -> None:
    callers: set[threading.Thread] = set()

    def copy() -> int:
        callers.add(threading.current_thread())
        return 1

    found = swept(copy)
    assert [point.threads for point in found] == [1, 2, 3]
    for point in found:
        assert point.alone.attention_bytes_per_s == pytest.approx(point.threads * KV_BYTES)
        assert point.alone.linear_bytes_per_s == pytest.approx(point.threads * WEIGHT_BYTES)
        assert point.beside_link is not None
        assert point.beside_link.attention_bytes_per_s == KV_BYTES / 2
        assert point.beside_link.linear_bytes_per_s == WEIGHT_BYTES / 2
        ratio = point.alone.read_bytes_per_s / point.beside_link.read_bytes_per_s
        assert ratio == pytest.approx(2 * point.threads)
        assert point.busiest == point.beside_link
    assert len(callers) == 1
    assert threading.main_thread() not in callers


@pytest.mark.usefixtures("told")
def test_without_a_link_threads_are_compared_alone() -> None:
    for point in swept(None):
        assert point.beside_link is None
        assert point.busiest == point.alone


@pytest.mark.usefixtures("told")
def test_a_copy_that_fails_is_no_rate() -> None:
    def copy() -> int:
        raise RuntimeError("no link")

    with pytest.raises(RuntimeError, match="no link"):
        swept(copy)


def test_the_link_is_busy_with_pinned_copies_to_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = install(monkeypatch)
    ends: list[threading.Thread] = []
    monkeypatch.setattr(
        torch.cuda, "synchronize", lambda device=None: ends.append(threading.current_thread())
    )
    device = probe.CudaProbe(torch.device("cpu"))
    size = TINY.link_bytes[-1]
    link = copy_to_device(TorchAccelerator(device, CodeMaths(multiply_codes, dequantize)), size)
    assert cuda.pinned == [size]
    before = len(ends)
    for point in swept(link):
        for rates in (point.alone, point.beside_link):
            assert isinstance(rates, ThreadRates)
    assert len(ends) > before, "copies are waited for"
    assert threading.main_thread() not in ends
