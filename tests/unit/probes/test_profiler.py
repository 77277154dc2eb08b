"""All probes of a profile, at tiny sizes; the accelerator is this machine's processor."""

import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.support.profiles import KERNELS, MACHINE

from tandem.kernels import native

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tandem.kernels.native_pool import NativePool
from tandem.probes.accelerator import copy_to_device, measure_accelerator
from tandem.probes.contention import measure_contention
from tandem.probes.disks import measure_disks
from tandem.probes.effort import Effort, coarse, thorough
from tandem.probes.kernel_cases import HeadShape
from tandem.probes.linear_cases import FLOAT16, quantized_kind
from tandem.probes.profiler import Subject, run_profile
from tandem.probes.rounds import median_seconds
from tandem.probes.torch_accelerator import TorchAccelerator
from tandem.profiling.profile_file import read_profile, write_profile
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.kv_type import CodeType

TINY = Effort(
    rounds=1,
    kinds=(FLOAT16, quantized_kind(8, 64)),
    sides=(64, 128),
    rows=(1, 8),
    heads=HeadShape(4, 2, 32),
    kv=(DType.FLOAT16, CodeType.INT4),
    batches=(1, 2),
    contexts=(16, 100),
    memory_bytes=1 << 20,
    link_bytes=(4096, 1 << 20),
    disk_bytes=64 << 20,
    trips=10,
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

    def aside(self) -> nullcontext[None]:
        return nullcontext()


def test_everything_is_measured_shown_and_stored(tmp_path: Path) -> None:
    steps: list[tuple[str, int, int]] = []
    subject = Subject(MACHINE, KERNELS, TorchAccelerator(Processor()), "")
    found = run_profile(subject, TINY, thorough=False, progress=lambda *step: steps.append(step))
    assert [done for _, done, _ in steps] == list(range(len(steps)))
    assert {total for *_, total in steps} == {len(steps)}
    host = found.host
    assert [times.kind for times in host.linear] == ["float16", "int8/64"]
    assert [times.kind for times in host.attention] == ["float16", "int4"]
    assert [codes.kind for codes in host.codes] == ["int8/64"]
    assert [point.threads for point in host.sweep] == [1, 2]
    for times in host.linear:
        assert times.surface.first == (64.0**2, 128.0**2)
        assert times.surface.second == (1.0, 8.0)
    assert host.attention[0].surface.second == (16.0, 100.0)
    assert host.attention[0].kv_elements == 2 * 2 * 32
    assert [each.copy for each in host.contention] == [
        "one thread copying in the host's memory",
        "host to accelerator, pinned",
    ]
    assert found.accelerator is not None
    assert found.accelerator.h2d.pinned.sizes == (4096.0, float(1 << 20))
    assert found.skipped == ("disks: none was named; name a folder on each with --disk",)
    write_profile(found, tmp_path / "profile.json")
    assert read_profile(tmp_path / "profile.json", MACHINE, KERNELS) == found


def test_what_is_not_there_is_named() -> None:
    few = replace(TINY, kinds=(), kv=(DType.FLOAT16,), batches=(1,), contexts=(16,))
    subject = Subject(MACHINE, KERNELS, None, "there is none")
    found = run_profile(subject, replace(few, kinds=(FLOAT16,)), thorough=True)
    assert found.accelerator is None
    assert found.skipped[0] == "accelerator and link: there is none"
    assert found.thorough


def test_every_time_on_an_accelerator_ends_with_its_end() -> None:
    device = Processor()
    measured = measure_accelerator(TorchAccelerator(device), TINY)
    assert [times.kind for times in measured.linear] == list(DType)
    calls = device.ends
    assert calls > 10 * TINY.rounds
    assert copy_to_device(TorchAccelerator(device), 100)() == 100
    assert device.ends == calls + 1


def test_a_copy_that_fails_beside_attention_is_no_rate() -> None:
    def copy() -> int:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("no link")
        return 1 << 30

    with pytest.raises(RuntimeError, match="no link"):
        measure_contention(NativePool(1), TINY, "broken", copy)


def test_a_disk_is_read_or_left_out_by_name(tmp_path: Path) -> None:
    disks, skipped = measure_disks((tmp_path, tmp_path), TINY)
    if skipped:
        assert not disks
        assert str(tmp_path) in skipped[0]
        return
    assert disks[0].folder == str(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no folder .*nowhere; name one with --disk"):
        measure_disks((tmp_path / "nowhere",), TINY)


def test_medians_are_of_turns() -> None:
    order: list[str] = []

    def sample(name: str, seconds: float):
        def call(i: int) -> float:
            order.append(name)
            return seconds * (1 + i)

        return call

    found = median_seconds({"a": sample("a", 1.0), "b": sample("b", 10.0)}, 3)
    assert order == ["a", "a", "b", "b", *"ababab"]
    assert found == {"a": 4.0, "b": 40.0}


def test_thorough_measures_all_that_coarse_does_and_more() -> None:
    few, many = coarse(), thorough()
    assert set(few.rows) < set(many.rows)
    assert set(few.sides) < set(many.sides)
    assert set(few.batches) < set(many.batches)
    assert set(few.contexts) < set(many.contexts)
    assert few.rounds < many.rounds
    assert few.rows[0] == 1
    assert few.rows[-1] == many.rows[-1] == 512
