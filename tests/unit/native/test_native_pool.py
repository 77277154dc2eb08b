"""The pool and its signals as Python sees them."""

import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from tests.unit.kernels.attention_case import exact_attention, make_case
from tests.unit.native.tier_case import TierCase, make_tier

from tandem.devices.host_threads import usable_cores
from tandem.kernels import native
from tandem.spec.errors import ConfigError

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tandem.kernels import _native
from tandem.kernels.dense import AttentionOutput
from tandem.kernels.native_attention import NativeBatch, paged_attention, submit_attention
from tandem.kernels.native_pool import NativePool, Pending, Signal

LONG_S = 30.0


@pytest.fixture(scope="module")
def tier() -> TierCase:
    return make_tier(make_case([(900, 1), (70, 1)], group=4, head_dim=64))


def batch_of(tier: TierCase, threads: int = 2) -> NativeBatch:
    return NativeBatch.from_binding(tier.attention, tier.case.shape, 8, threads)


def submit(
    pool: NativePool,
    tier: TierCase,
    after: Sequence[tuple[Signal, int]] = (),
    then: tuple[Signal, int] | None = None,
) -> Pending[AttentionOutput]:
    batch = batch_of(tier)
    return submit_attention(
        pool, tier.query, tier.pages, batch, tier.case.scale, after=after, then=then
    )


def assert_exact(result: AttentionOutput, tier: TierCase) -> None:
    expected = tuple(exact_attention(tier.case))
    torch.testing.assert_close(tuple(result), expected, rtol=1e-5, atol=1e-5, check_dtype=False)


def in_threads(count: int, function: Callable[[], None]) -> None:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_work_waits_for_its_signal_and_raises_another(threads: int, tier: TierCase) -> None:
    pool = NativePool(threads)
    gate, end = Signal(0xFFFFFFFE), Signal(3)
    began_s = time.monotonic()
    pending = submit(pool, tier, after=[(gate, 1)], then=(end, 4))
    gate.set(0)  # two steps before 1: the counter wraps around
    assert not pending.wait(0.01)
    assert not end.reached(4)
    assert pending.start_s == 0
    gate.set(1)
    assert end.wait(4, LONG_S)
    assert pending.wait(LONG_S)
    assert pending.done
    assert began_s <= pending.start_s <= pending.end_s <= time.monotonic()
    assert_exact(pending.result, tier)


def test_work_waits_for_all_its_signals_and_can_be_taken_back(tier: TierCase) -> None:
    pool, gates = NativePool(2), [Signal(), Signal()]
    after = [(gate, 1) for gate in gates]
    pending, unwanted = (submit(pool, tier, after, (Signal(), 1)) for _ in range(2))
    gates[1].set(1)
    assert not pending.wait(0.01)
    assert unwanted.cancel()
    assert not unwanted.cancel()
    with pytest.raises(RuntimeError, match="cancelled before it began"):
        unwanted.wait(LONG_S)
    gates[0].set(1)
    assert pending.wait(LONG_S)
    assert not pending.cancel()
    assert_exact(pending.result, tier)
    with pytest.raises(ValueError, match="4 signals at most, not 6"):
        submit(pool, tier, 3 * after)


def test_chained_work_needs_no_python_in_between(tier: TierCase) -> None:
    pool, counter = NativePool(2), Signal()
    chain = [submit(pool, tier, [(counter, i)], (counter, i + 1)) for i in reversed(range(1, 6))]
    counter.set(1)
    assert counter.wait(6, LONG_S)
    ends = [pending.end_s for pending in chain]
    assert ends == sorted(ends, reverse=True)
    for pending in chain:
        assert pending.wait(LONG_S)
        assert_exact(pending.result, tier)


def test_a_signal_in_foreign_memory(tier: TierCase) -> None:
    memory = ctypes.c_uint32(7)
    signal = Signal(address=ctypes.addressof(memory))
    pending = submit(NativePool(2), tier, after=[(signal, 9)], then=(signal, 10))
    memory.value = 9  # as a device would: no one is woken
    assert pending.wait(LONG_S)
    assert memory.value == 10
    with pytest.raises(ValueError, match="cannot go back from 10 to 9"):
        signal.set(9)
    with pytest.raises(ValueError, match="multiple of 4"):
        Signal(address=ctypes.addressof(memory) + 1)


def test_waiting_leaves_the_interpreter_to_others() -> None:
    signal, seen = Signal(), []
    waiter = threading.Thread(target=lambda: seen.append(signal.wait(1, LONG_S)))
    waiter.start()
    signal.set(1)  # never reached if the waiter held the interpreter
    waiter.join()
    assert seen == [True]
    assert not signal.wait(2, timeout_s=0.001)


def test_several_python_threads_share_a_pool(tier: TierCase) -> None:
    pool = NativePool(2)
    batch = batch_of(tier)

    def attend() -> None:
        for _ in range(20):
            result = paged_attention(pool, tier.query, tier.pages, batch, tier.case.scale)
            assert_exact(result, tier)

    in_threads(4, attend)


def test_a_pool_can_be_resized_while_work_waits(tier: TierCase) -> None:
    pool, gate = NativePool(1), Signal()
    pending = submit(pool, tier, after=[(gate, 1)])
    pool.resize(3)
    assert pool.num_threads == 3
    gate.set(1)
    assert pending.wait(LONG_S)
    assert_exact(pending.result, tier)
    with pytest.raises(ValueError, match="at least one thread"):
        pool.resize(-1)
    pool.resize(0)
    assert pool.num_threads == _native.default_num_threads()


class Memory(bytearray):
    """Bytes of which it can be told when nothing refers to them any more."""


def test_dropped_work_is_finished_before_its_memory_goes() -> None:
    pool, gate = NativePool(2), Signal()
    memory = {name: Memory(64 * 4) for name in ("source", "target")}
    alive = {name: weakref.ref(part) for name, part in memory.items()}
    source, target = (torch.frombuffer(part, dtype=torch.float32) for part in memory.values())
    source.fill_(3.0)
    target.zero_()
    shape, block = (1, 1, 2, 1, 4, 8), torch.zeros(1, dtype=torch.int64)
    pages = source.view(shape), target.view(shape)
    tasks = [_native.copy_blocks(pool.handle, pages[0], block, pages[1], block)]
    tasks[0].submit([(gate, 1)])
    kept = memory["target"]
    del source, pages, memory, block
    dropper = threading.Thread(target=tasks.clear)
    dropper.start()  # waits for the work, which waits for its signal
    dropper.join(0.05)
    assert dropper.is_alive()
    assert alive["source"]() is not None
    gate.set(1)
    dropper.join(LONG_S)
    assert not dropper.is_alive()
    assert torch.equal(target, torch.full((64,), 3.0))
    del kept, target
    gc.collect()
    assert [part() for part in alive.values()] == [None, None]


def thread_ids() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/task")}


def test_pinned_threads_have_a_processor_each(tier: TierCase) -> None:
    allowed, before = os.sched_getaffinity(0), thread_ids()
    pool = NativePool(len(allowed) + 1, pin=True)
    mine = sorted(thread_ids() - before)
    order = [*sorted(allowed), min(allowed)]  # one more than there are: round the corner
    assert sorted(tuple(os.sched_getaffinity(i)) for i in mine) == sorted((cpu,) for cpu in order)
    assert os.sched_getaffinity(0) == allowed
    pending = submit(pool, tier)
    assert pending.wait(LONG_S)
    assert_exact(pending.result, tier)


def test_a_pool_that_cannot_grow_stays_as_it_was() -> None:
    program = """
import resource
from tandem.kernels import _native
pool = _native.Pool(2)
used = next(int(line.split()[1]) for line in open("/proc/self/status") if "VmSize" in line)
resource.setrlimit(resource.RLIMIT_AS, (used * 1024 + (100 << 20), resource.RLIM_INFINITY))
try:
    pool.resize(200)  # stacks of megabytes each
except RuntimeError as error:
    print(error)
print(pool.num_threads)
task = _native.nothing(pool)
task.submit()
print(task.wait(20.0))
pool.resize(1)
task = _native.nothing(pool)
task.submit()
print(task.wait(20.0))
"""
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(Path(native.__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    refusal, *rest = result.stdout.splitlines()
    assert refusal.startswith("a pool cannot have 200 threads: ")
    assert rest == ["2", "True", "True"]


def test_a_task_runs_once(tier: TierCase) -> None:
    pool = NativePool(2)
    task = _native.nothing(pool.handle)
    with pytest.raises(ValueError, match="was not submitted"):
        task.wait(0)
    task.run()
    for again in (task.run, task.submit):
        with pytest.raises(ValueError, match="a task runs once"):
            again()
    assert task.wait(LONG_S)


def write(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


V2 = "0::/pod/box\n"
V1 = "4:memory:/m\n3:cpu,cpuacct:/box\n"


@pytest.mark.parametrize(
    ("files", "one_thread"),
    [
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/pod/box/cpu.max": "50000 100000\n"}, True),
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/pod/cpu.max": "100000 100000\n"}, True),
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/pod/box/cpu.max": "190000 100000\n"}, True),
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/pod/box/cpu.max": "max 100000\n"}, False),
        (
            {
                "proc/self/cgroup": V1,
                "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "100000\n",
                "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000\n",
            },
            True,
        ),
        ({"proc/self/cgroup": V1, "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "-1\n"}, False),
        ({}, False),
    ],
)
def test_the_cgroups_quota_bounds_the_threads(
    tmp_path: Path, files: dict[str, str], one_thread: bool
) -> None:
    unbounded = _native.default_num_threads(str(tmp_path / "nothing"))
    expected = 1 if one_thread else unbounded
    assert _native.default_num_threads(write(tmp_path, files)) == expected
    assert usable_cores(tmp_path) == expected  # which counts where nothing is compiled


def test_the_affinity_mask_bounds_the_threads() -> None:
    program = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "from tandem.kernels import _native; print(_native.default_num_threads())"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(Path(native.__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert result.stdout.split() == ["1"]


def test_the_instruction_set_can_be_chosen() -> None:
    best = [name for name in native.supported_isas() if name != "amx"][-1]  # by name only: ADR 0042
    assert native.choose_isa({}) == best
    for name in native.supported_isas():
        assert native.choose_isa({"TANDEM_CPU_ISA": name}) == name
        assert NativePool(1, isa=name).isa == name
    with pytest.raises(ConfigError, match=r"TANDEM_CPU_ISA: unknown instruction set 'mmx': choose"):
        native.choose_isa({"TANDEM_CPU_ISA": "mmx"})
