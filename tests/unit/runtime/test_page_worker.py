"""Threads between pages and a disk: nothing torn is written, and reads wait for no write."""

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tandem.plan.page_jobs import PageJob, PageJobDone, PageRead, PageWrite
from tandem.runtime import page_worker
from tandem.runtime.page_file import PageFile
from tandem.runtime.page_worker import PageWorker

LAYERS, BLOCKS, PAGE_BYTES = 2, 6, 48
DIGEST, OTHER = b"a" * 16, b"b" * 16


@dataclass(frozen=True, slots=True)
class Disk:
    """A worker and what it works on."""

    file: PageFile
    worker: PageWorker
    pages: np.ndarray

    def do(self, *jobs: PageJob) -> list[PageJobDone]:
        """Ends of all jobs, in their order."""
        self.worker.submit(jobs)
        return self.ends(len(jobs))

    def ends(self, count: int) -> list[PageJobDone]:
        found: list[PageJobDone] = []
        while len(found) < count:
            self.worker.wait()
            found += self.worker.poll()
        return found


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    file = PageFile(tmp_path / "kv", {"model": "a"}, LAYERS * PAGE_BYTES, 1 << 17)
    pages = np.arange(LAYERS * BLOCKS * PAGE_BYTES, dtype=np.uint8)
    pages = pages.reshape(LAYERS, BLOCKS, PAGE_BYTES)
    worker = PageWorker(file, pages)
    yield Disk(file, worker, pages)
    worker.close()


def read(end: PageJobDone, block: int) -> PageRead:
    assert isinstance(end.job, PageWrite)
    return PageRead(end.job.slot, end.job.digest, end.checksum, block)


def test_a_block_goes_there_and_comes_back_elsewhere(disk: Disk) -> None:
    (written,) = disk.do(PageWrite(1, DIGEST, slot=3, age=1))
    before = disk.pages[:, 1].copy()
    disk.pages[:, 1] = 0
    (end,) = disk.do(read(written, 4))
    assert (written.ok, end.ok) == (True, True)
    assert np.array_equal(disk.pages[:, 4], before)
    assert end.time_s > 0


def test_what_was_given_away_is_not_written(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    early, late = PageWrite(1, DIGEST, 0, 1, void=True), PageWrite(2, OTHER, 1, 2)
    copy = np.copyto

    def given_away_meanwhile(target: np.ndarray, source: np.ndarray) -> None:
        copy(target, source)
        late.void = True

    monkeypatch.setattr(page_worker.np, "copyto", given_away_meanwhile)
    assert [end.ok for end in disk.do(early, late)] == [False, False]
    assert not any(end.full for end in disk.do(early))
    assert list(disk.file.stored()) == []


def test_a_read_waits_for_no_write(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    (written,) = disk.do(PageWrite(1, DIGEST, 0, 1))
    slow, whole = threading.Event(), disk.file.write

    def write(*args: object) -> int:
        slow.wait()
        return whole(*args)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(disk.file, "write", write)
    disk.worker.submit([PageWrite(2, OTHER, 1, 2)])
    assert not disk.worker.wait(timeout_s=0.01)
    (end,) = disk.do(read(written, 3))
    assert isinstance(end.job, PageRead)
    assert end.ok
    slow.set()
    assert disk.ends(1)[0].ok


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), ValueError("a fault of ours")])
def test_what_cannot_be_read_is_told_once(
    error: Exception, disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (written,) = disk.do(PageWrite(1, DIGEST, 0, 1))

    def broken(*_: object) -> bool:
        raise error

    monkeypatch.setattr(disk.file, "read", broken)
    with caplog.at_level(logging.WARNING):
        ends = disk.do(read(written, 3), read(written, 4))
    assert [end.ok for end in ends] == [False, False]
    assert sum("is damaged or cannot be read" in each.getMessage() for each in caplog.records) == 1
    assert list(disk.file.stored()) == []


def test_after_an_error_nothing_is_written(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (written,) = disk.do(PageWrite(1, DIGEST, 0, 1))
    calls: list[object] = []

    def full(*args: object) -> int:
        calls.append(args)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk.file, "write", full)
    with caplog.at_level(logging.WARNING):
        ends = disk.do(PageWrite(2, OTHER, 1, 2), PageWrite(3, b"c" * 16, 2, 3))
    assert [(end.ok, end.full) for end in ends] == [(False, True), (False, True)]
    assert len(calls) == len(caplog.records) == 1
    assert disk.do(read(written, 5))[0].ok


def test_queued_jobs_do_not_delay_the_end(disk: Disk) -> None:
    woken = threading.Event()
    disk.worker.wake_by(woken.set)
    disk.worker.submit(PageWrite(1, bytes([n]) * 16, n % 20, n) for n in range(1, 200))
    woken.wait()
    disk.worker.close()
    assert len(list(disk.file.path.iterdir())) == 4
