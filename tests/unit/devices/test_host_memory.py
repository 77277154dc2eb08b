"""Bulk memory: as large as asked for, in huge pages where the system gives them."""

import mmap
import re
from pathlib import Path

import pytest
import torch

from tandem.devices.host_memory import HUGE_PAGE_BYTES, bulk_memory, bulk_zeros, huge_pages

MODES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
CPU = torch.device("cpu")


def asked_for_huge_pages(address: int) -> bool:
    """Whether the mapping that holds `address` is one of which huge pages were asked for."""
    holds = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if match := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            holds = int(match[1], 16) <= address < int(match[2], 16)
        elif holds and line.startswith("VmFlags:"):
            return "hg" in line.split()
    return False


def resident_bytes() -> int:
    """Of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * mmap.PAGESIZE


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((0, 3), torch.float32),
        ((5,), torch.uint8),
        ((HUGE_PAGE_BYTES - 1,), torch.uint8),
        ((HUGE_PAGE_BYTES,), torch.uint8),
        ((3, 1000, 1001), torch.bfloat16),
    ],
)
def test_zeros_of_any_size_that_can_be_written(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    zeros = bulk_zeros(shape, dtype)
    assert zeros.shape == shape
    assert zeros.dtype == dtype
    assert zeros.is_contiguous()
    assert not zeros.any()
    zeros.fill_(1)
    assert bool((zeros == 1).all())


def test_large_ones_begin_with_a_huge_page_and_do_not_overlap() -> None:
    first, second = (bulk_zeros((HUGE_PAGE_BYTES + 5,), torch.uint8) for _ in range(2))
    assert first.data_ptr() % HUGE_PAGE_BYTES == second.data_ptr() % HUGE_PAGE_BYTES == 0
    assert abs(first.data_ptr() - second.data_ptr()) >= first.nbytes
    first.fill_(7)
    assert not second.any()


@pytest.mark.skipif(not MODES.exists(), reason="no huge pages")
def test_huge_pages_are_asked_for_but_not_for_the_end() -> None:
    zeros = bulk_zeros((4 * HUGE_PAGE_BYTES + 3 * mmap.PAGESIZE,), torch.uint8)
    assert asked_for_huge_pages(zeros.data_ptr())
    assert asked_for_huge_pages(zeros.data_ptr() + 4 * HUGE_PAGE_BYTES - 1)
    assert not asked_for_huge_pages(zeros.data_ptr() + 4 * HUGE_PAGE_BYTES)


def test_nothing_is_held_before_it_is_touched_nor_more_than_was_asked_for_nor_afterwards() -> None:
    size_bytes, slack = 32 * HUGE_PAGE_BYTES + 5, 1 << 20
    before = resident_bytes()
    zeros = bulk_zeros((size_bytes,), torch.uint8)
    assert resident_bytes() < before + slack
    zeros.fill_(1)
    view = zeros[HUGE_PAGE_BYTES:]
    del zeros
    assert abs(resident_bytes() - before - size_bytes) < slack
    assert int(view[::4096].sum()) == len(view[::4096])
    del view
    assert resident_bytes() < before + slack


def test_memory_of_another_device_is_its_own() -> None:
    tensor = bulk_memory((HUGE_PAGE_BYTES,), torch.uint8, torch.device("meta"))
    assert tensor.device.type == "meta"
    assert not bulk_memory((HUGE_PAGE_BYTES,), torch.uint8, CPU).any()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("always [madvise] never\n", "madvise"),
        ("[always] madvise never\n", "always"),
        ("always madvise [never]\n", "never: bulk memory is read more slowly"),
    ],
)
def test_reports_say_what_the_system_does(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "enabled"
    file.write_text(text)
    assert huge_pages(file) == said


def test_a_system_without_huge_pages_is_named(tmp_path: Path) -> None:
    assert huge_pages(tmp_path / "enabled").startswith("none")
