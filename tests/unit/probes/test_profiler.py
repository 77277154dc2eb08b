"""All probes of a profile, at tiny sizes; the accelerator is this machine's processor."""

import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from tests.support.profiles import KERNELS, MACHINE

from tandem.kernels import native

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tandem.cli.profile_text import profile_text
from tandem.kernels.native_pool import NativePool
from tandem.models.linear import dequantize, multiply_codes
from tandem.probes import attention_times, card_attention, linear_times, torch_accelerator
from tandem.probes import disks as disks_module
from tandem.probes.accelerator import copy_to_device, measure_accelerator
from tandem.probes.at_once import Sharer, measure_at_once
from tandem.probes.contention import BusyWith, CpuWork, cpu_works, measure_contention
from tandem.probes.disks import Disks
from tandem.probes.effort import Effort, coarse, thorough
from tandem.probes.kernel_cases import HeadShape, PageProbe
from tandem.probes.kernel_pages import code_shape
from tandem.probes.linear_cases import FLOAT16, MatrixShape, WeightKind, quantized_kind
from tandem.probes.profiler import Subject, run_profile
from tandem.probes.rounds import median_seconds
from tandem.probes.timing import Sample
from tandem.probes.torch_accelerator import CodeMaths, TorchAccelerator
from tandem.probes.walked_memory import WalkedMemory
from tandem.profiling.measurements import AtOnce
from tandem.profiling.profile_file import read_profile, write_profile
from tandem.quant.quantized_weight import QuantizedWeight
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.kv_type import CodeType

TINY = Effort(
    rounds=1,
    kinds=(FLOAT16, quantized_kind(8, 64)),
    sides=(64, 128),
    rows=(1, 8),
    card_rows=(1, 8, 65),
    heads=HeadShape(4, 2, 32),
    kv=(DType.FLOAT16, CodeType.INT4),
    batches=(1, 2),
    contexts=(16, 100),
    memory_bytes=1 << 20,
    link_bytes=(4096, 1 << 20),
    disk_bytes=64 << 20,
    trips=10,
    prompts=(1, 2),
    prompt_tokens=(16, 100),
)


class Processor:
    """An accelerator that is none: work has ended when it has been submitted."""

    device = torch.device("cpu")
    name = "a processor"
    memory_bytes = 1 << 30

    def __init__(self) -> None:
        self.ends = 0

    def pinned(self, size_bytes: int) -> torch.Tensor:
        return torch.empty(size_bytes, dtype=torch.uint8)

    def synchronize(self) -> None:
        self.ends += 1

    def recorded(self, work: Callable[[], object]) -> Callable[[], object]:
        return work

    def aside(self) -> nullcontext[None]:
        return nullcontext()


def probed(device: Processor) -> TorchAccelerator:
    return TorchAccelerator(device, CodeMaths(multiply_codes, dequantize))


def test_everything_is_measured_shown_and_stored(tmp_path: Path) -> None:
    steps: list[tuple[str, int, int]] = []
    subject = Subject(MACHINE, KERNELS, probed(Processor()), "")
    found = run_profile(subject, TINY, thorough=False, progress=lambda *step: steps.append(step))
    assert [done for _, done, _ in steps] == list(range(len(steps)))
    assert {total for *_, total in steps} == {len(steps)}
    host = found.host
    assert [times.kind for times in host.linear] == ["float16", "int8/64"]
    assert [times.kind for times in host.attention] == ["float16", "int4"]
    assert [codes.kind for codes in host.codes] == ["int8/64"]
    assert [point.threads for point in host.sweep] == [1, 2]
    assert all(point.beside_link is not None for point in host.sweep)
    for times in host.linear:
        assert times.surface.first == (64.0**2, 128.0**2)
        assert times.surface.second == (1.0, 8.0)
    assert host.attention[0].surface.second == (16.0, 100.0)
    assert host.attention[0].kv_elements == 2 * 2 * 32
    loads = [
        "one thread copying in the host's memory",
        "one thread dequantizing int8/64",
        "host to accelerator, pinned",
    ]
    works = ["decode attention", "products of 8 rows"]
    assert [(each.work, each.load) for each in host.contention] == [
        (work, load) for load in loads for work in works
    ]
    assert [(each.bound_by, each.busy) for each in host.contention] == [
        (bound_by, busy)
        for busy in ("copies in memory", "dequantization", "link")
        for bound_by in ("memory", "cores")
    ]
    assert found.striping is None
    assert [each.thing for each in found.at_once] == ["attention", "link both ways"]
    assert found.accelerator is not None
    assert found.accelerator.h2d.pinned.sizes == (4096.0, float(1 << 20))
    assert found.skipped == ("disks: none was named; name a folder on each with --disk",)
    write_profile(found, tmp_path / "profile.json")
    assert read_profile(tmp_path / "profile.json", MACHINE, KERNELS) == found


@pytest.mark.parametrize("budget_s", [0.0, 1e6])
def test_where_the_time_runs_short_the_rest_has_one_round_each_and_is_named(
    budget_s: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rounds: list[int] = []
    for module in (attention_times, linear_times):
        counted = module.median_seconds

        def counting(samples: Mapping[Any, Sample], most: int, counted: Any = counted) -> Any:
            rounds.append(most)
            return counted(samples, most)

        monkeypatch.setattr(module, "median_seconds", counting)
    some = replace(TINY, kinds=(FLOAT16,), kv=(DType.FLOAT16,), rounds=3, budget_s=budget_s)
    found = run_profile(Subject(MACHINE, KERNELS, None, ""), some, thorough=False)
    if budget_s:
        assert (rounds, found.hurried) == ([3, 3], ())
        return
    assert rounds == [1, 1]
    # what takes no rounds cannot be hurried
    assert found.hurried == (
        "memory", "threads", "linear, float16", "attention, float16", "quantizing",
    )  # fmt: skip
    write_profile(found, tmp_path / "profile.json")
    assert read_profile(tmp_path / "profile.json", MACHINE, KERNELS) == found
    told = [line for line in profile_text(found, tmp_path) if line.startswith("measured in one")]
    assert told[0].endswith(": memory, threads, linear, float16, attention, float16, quantizing")


def test_a_thorough_profile_has_all_the_time_and_a_coarse_one_a_minute() -> None:
    assert (coarse().budget_s, thorough().budget_s) == (60.0, math.inf)


def test_what_is_not_there_is_named() -> None:
    few = replace(TINY, kinds=(), kv=(DType.FLOAT16,), batches=(1,), contexts=(16,))
    subject = Subject(MACHINE, KERNELS, None, "there is none")
    found = run_profile(subject, replace(few, kinds=(FLOAT16,)), thorough=True)
    assert found.accelerator is None
    assert found.at_once == (), "attention shares with nobody"
    assert all(point.beside_link is None for point in found.host.sweep), "there is no link"
    assert found.skipped[0] == "accelerator and link: there is none"
    assert found.thorough


def test_every_time_on_an_accelerator_ends_with_its_end() -> None:
    device = Processor()
    measured = measure_accelerator(probed(device), TINY)
    assert [times.kind for times in measured.linear] == [*DType, "int8/64"]
    assert measured.heads == "4/2/32"
    assert [times.kind for times in measured.attention] == ["float16", "int4"]
    assert [times.surface.second for times in measured.attention] == [(16.0, 100.0)] * 2
    assert [times.kind for times in measured.prompts] == ["float16", "int4"]
    assert [times.surface.first for times in measured.prompts] == [(1.0, 2.0)] * 2
    assert [times.pair_flops for times in measured.prompts] == [4 * (4 * 32 + 5)] * 2
    assert [codes.kind for codes in measured.codes] == ["int8/64", "kv int4"]
    calls = device.ends
    assert calls > 10 * TINY.rounds
    assert copy_to_device(probed(device), 100)() == 100
    assert device.ends == calls + 1


@pytest.mark.parametrize("kind", [FLOAT16, quantized_kind(4, 64)])
def test_no_weight_comes_again_while_a_cache_of_the_accelerator_may_have_it(
    kind: WeightKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    side, cache = 64, 20 * kind.size_bytes(MatrixShape(64, 64))
    monkeypatch.setattr(torch_accelerator, "UNCACHED_BYTES", cache)
    read: list[int] = []

    def multiply(weight: QuantizedWeight, x: torch.Tensor) -> torch.Tensor:
        read.append(weight.q.data_ptr())
        return x

    def mm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        read.append(weight.data_ptr())
        return x

    monkeypatch.setattr(torch, "mm", mm)
    accelerator = TorchAccelerator(Processor(), CodeMaths(multiply, dequantize))
    (sample,) = accelerator.products(kind, side, (1,)).values()
    for turn in range(3):
        sample(turn)
    assert all(len(set(read[at : at + 20])) == 20 for at in range(len(read) - 20))


@pytest.mark.parametrize("kv", [DType.FLOAT16, CodeType.INT4])
def test_a_host_with_large_caches_does_not_fill_the_accelerator(
    kv: DType | CodeType, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def noted(heads: HeadShape, count: int, *rest: object) -> torch.Tensor:
        del rest
        shape = (count, 2, heads.kv_heads, 64, heads.head_dim)
        if kv is CodeType.INT4:
            shape = (count, code_shape(heads, CodeType.INT4).quantized.page_bytes)
        pages = torch.empty(shape, dtype=torch.uint8 if len(shape) == 2 else torch.float16)
        made.append(pages.nbytes)
        return torch.zeros_like(pages[:64])

    monkeypatch.setattr(card_attention, "float_pages", noted)
    monkeypatch.setattr(card_attention, "code_pages", noted)
    pages = PageProbe(HeadShape(32, 8, 128), kv, 16 << 30)
    probed(Processor()).decoding(pages, [(1, 64)])
    probed(Processor()).reading_prompts(pages, [(1, 64)])
    assert 0 < max(made) <= 256 << 20


def test_a_copy_that_fails_beside_attention_is_no_rate() -> None:
    def copy() -> int:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("no link")
        return 1 << 30

    with pytest.raises(RuntimeError, match="no link"):
        measure_contention(
            cpu_works(NativePool(1), TINY, WalkedMemory(TINY.memory_bytes)),
            BusyWith("broken", "link", copy),
        )


def test_a_disk_is_read_or_left_out_by_name(tmp_path: Path) -> None:
    subject = Subject(MACHINE, KERNELS, None, "there is none", (tmp_path, tmp_path))
    steps: list[tuple[str, int, int]] = []
    found = run_profile(subject, TINY, thorough=False, progress=lambda *step: steps.append(step))
    assert [(done, total) for _, done, total in steps] == [
        (i, len(steps)) for i in range(len(steps))
    ]
    assert list(tmp_path.iterdir()) == []
    if not found.disks:
        assert any(str(tmp_path) in line for line in found.skipped)
        return
    assert [disk.folder for disk in found.disks] == [str(tmp_path)], "one disk, once"
    assert found.striping is None
    beside_disk = [each for each in found.host.contention if each.load == f"reading {tmp_path}"]
    assert [each.work for each in beside_disk] == ["decode attention", "products of 8 rows"]
    assert [each.busy for each in beside_disk] == ["disks", "disks"]
    assert [each.thing for each in found.at_once] == ["attention", "disks"]


def test_all_at_once_are_rates_beside_each_other_and_not_those_alone() -> None:
    """Loads are slow only while attention goes on, as long as one of them or shorter: those before
    its start and after its end are fast, and must not count.
    """
    attends = threading.Event()

    def attend(_: int) -> float:
        attends.set()
        time.sleep(0.02)
        attends.clear()
        return 0.25 if threading.active_count() == alone else 0.5

    def load(size: int, calls: int) -> Callable[[], int]:
        def move() -> int:
            slow = False
            for _ in range(calls):
                time.sleep(1e-3)
                slow |= attends.is_set()
            mine = threading.current_thread() is threading.main_thread()
            return size // 10 if slow and not mine else size

        return move

    alone = threading.active_count()
    work = CpuWork("attention", "memory", 100.0, attend)
    others = (Sharer("link both ways", load(10_000, 1)), Sharer("disks", load(1_400_000, 60)))
    attention, link, disks = measure_at_once(work, others, rounds=3)
    assert attention == AtOnce("attention", 400.0, 200.0)
    for found in (link, disks):
        assert found.together_bytes_per_s < 0.3 * found.alone_bytes_per_s
    assert disks.alone_bytes_per_s > link.alone_bytes_per_s
    assert threading.active_count() == alone


def test_a_load_that_fails_ends_the_measurement_beside_it() -> None:
    def attend(_: int) -> float:
        return 0.1

    def broken() -> int:
        if threading.current_thread() is not threading.main_thread():
            raise OSError("the disk is gone")
        return 1

    work = CpuWork("attention", "memory", 100.0, attend)
    with pytest.raises(OSError, match="the disk is gone"):
        measure_at_once(work, [Sharer("disks", broken)], rounds=1)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--disk .*nowhere: there is no such folder; make it"):
        Disks((tmp_path / "nowhere",), TINY)


class FastAndSlow:
    """In place of a disk: `fast` reads three times as many bytes per second as `slow`."""

    closed: ClassVar[list[str]] = []

    def __init__(self, folder: Path, size_bytes: int, trials: int) -> None:
        self.name, self.size = folder.name, size_bytes
        self.rate = {"fast": 3e9, "slow": 1e9}[folder.name]

    def seconds(self, share: float) -> float:
        return share * self.size / self.rate

    def close(self) -> None:
        self.closed.append(self.name)


def test_disks_that_read_at_once_get_shares_by_their_rates(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(disks_module, "DiskProbe", FastAndSlow)
    folders = (tmp_path / "slow", tmp_path / "fast")
    for folder in folders:
        folder.mkdir()
    busy: list[float] = []

    def beside(probe: Callable[[], float]) -> float:
        busy.append(probe())
        return busy[-1]

    with Disks(folders, TINY) as disks:
        found = disks.stripe(beside)
        assert disks.reading((0.25, 0.75))() == TINY.disk_bytes
    assert found is not None
    assert found.shares == pytest.approx((0.25, 0.75), rel=0.01)
    assert found.bytes_per_s == pytest.approx(4e9, rel=0.01)
    assert len(busy) == 11, "ten rounds and the result, all while the rest is busy"
    assert busy[0] > busy[-1]
    assert sorted(FastAndSlow.closed) == ["fast", "slow"]


def test_medians_are_of_turns() -> None:
    order: list[str] = []

    def sample(name: str, seconds: float):
        def call(i: int) -> float:
            order.append(name)
            return seconds * (1 + i)

        return call

    found = median_seconds({"a": sample("a", 1.0), "b": sample("b", 10.0)}, 3)
    # of what is long enough to be timed alone, one call says how often to call
    assert order == ["a", "b", *"ababab"]
    assert found == {"a": 4.0, "b": 40.0}
    order.clear()
    assert median_seconds({"c": sample("c", 1.5e-3)}, 2)["c"] == pytest.approx(5.25e-3)
    assert order == ["c"] * 4


def test_thorough_measures_all_that_coarse_does_and_more() -> None:
    few, many = coarse(), thorough()
    assert set(few.rows) < set(many.rows)
    assert set(few.sides) < set(many.sides)
    assert set(few.batches) < set(many.batches)
    assert set(few.contexts) < set(many.contexts)
    assert few.rounds < many.rounds
    assert few.rows[0] == 1
    assert few.rows[-1] == many.rows[-1] == 512
