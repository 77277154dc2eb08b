"""Threads that write KV blocks to a disk and read them back, beside the engine's loop."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from tandem.plan.page_jobs import PageJob, PageJobDone, PageRead, PageWrite
from tandem.runtime.page_file import PageFile, Parts

_LOG = logging.getLogger(__name__)
_FLUSH_BYTES = 64 << 20


class PageWorker:
    """One thread that writes and one that reads, so that nobody waits for a write's end.

    Args:
        file: owned, and closed with the worker.
        pages: uint8 [layers, blocks, page bytes] of the tier whose blocks are written and filled.
    """

    def __init__(self, file: PageFile, pages: NDArray[np.uint8]) -> None:
        self._file, self._pages = file, pages
        self._copy = np.empty((pages.shape[0], pages.shape[2]), dtype=np.uint8)
        self._unflushed_bytes = 0
        self._full = self._told = False
        self._ends: list[PageJobDone] = []
        self._ended = threading.Condition()
        self._wake: Callable[[], None] | None = None
        self._closing = threading.Event()
        self._reads: SimpleQueue[PageRead | None] = SimpleQueue()
        self._writes: SimpleQueue[PageWrite | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=target, name=f"tandem-kv-{name}", daemon=True)
            for name, target in (("read", self._serve_reads), ("write", self._serve_writes))
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, jobs: Iterable[PageJob]) -> None:
        """Queue jobs; reads and writes are done in their order among their like."""
        for job in jobs:
            if isinstance(job, PageRead):
                self._reads.put(job)
            else:
                self._writes.put(job)

    def poll(self) -> list[PageJobDone]:
        """Jobs that have ended since the last call."""
        with self._ended:
            ends, self._ends = self._ends, []
        return ends

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until `poll` has something to tell; only legal while a job is under way.

        Returns: False if `timeout_s` passed first.
        """
        with self._ended:
            return self._ended.wait_for(lambda: bool(self._ends), timeout_s)

    def wake_by(self, wake: Callable[[], None]) -> None:
        """Have `wake` called, on a thread of the worker's, when `poll` has something to tell after
        it had nothing.
        """
        self._wake = wake

    def close(self) -> None:
        """End after the jobs under way; queued ones are dropped."""
        self._closing.set()
        self._reads.put(None)
        self._writes.put(None)
        for thread in self._threads:
            thread.join()
        self._file.close()

    # --- the threads ------------------------------------------------------------------------------

    def _serve_reads(self) -> None:
        while (job := self._reads.get()) is not None and not self._closing.is_set():
            start_s = time.perf_counter()
            sound = self._read(job)
            self._end(PageJobDone(job, sound, time_s=time.perf_counter() - start_s))

    def _serve_writes(self) -> None:
        while (job := self._writes.get()) is not None and not self._closing.is_set():
            start_s = time.perf_counter()
            checksum = None if self._full else self._write(job)
            time_s = time.perf_counter() - start_s
            self._end(PageJobDone(job, checksum is not None, checksum or 0, time_s, self._full))

    def _read(self, job: PageRead) -> bool:
        try:
            parts = _parts(self._pages[:, job.block])
            sound = self._file.read(job.slot, job.digest, job.checksum, parts)
        except Exception:  # noqa: BLE001 - a request waits for the end, whatever becomes of the job
            _LOG.debug("--kv-disk %s: a read failed", self._file.path, exc_info=True)
            sound = False
        if not sound:
            self._discard(job)
        return sound

    def _write(self, job: PageWrite) -> int | None:
        """The checksum; None if nothing was written."""
        if job.void:
            return None
        np.copyto(self._copy, self._pages[:, job.block])
        if job.void:  # given away meanwhile: the copy may be torn
            return None
        try:
            checksum = self._file.write(job.slot, job.digest, job.age, _parts(self._copy))
            self._unflushed_bytes += self._copy.nbytes
            if self._unflushed_bytes >= _FLUSH_BYTES:
                self._unflushed_bytes = 0
                self._file.flush()
        except Exception as error:  # noqa: BLE001 - of the disk, or a fault of ours: go without it
            self._full = True
            _LOG.warning(
                "--kv-disk %s takes no more KV (%s): what is there is used, nothing is added",
                self._file.path,
                getattr(error, "strerror", None) or error,
            )
            return None
        return checksum

    def _discard(self, job: PageRead) -> None:
        if not self._told:
            self._told = True
            _LOG.warning(
                "--kv-disk %s: a KV block is damaged or cannot be read; it is computed again, as "
                "are others (tandem:prefix_disk_damaged_blocks_total)",
                self._file.path,
            )
        with suppress(OSError):  # it will be found out again
            self._file.discard(job.slot)

    def _end(self, end: PageJobDone) -> None:
        with self._ended:
            first = not self._ends
            self._ends.append(end)
            self._ended.notify_all()
        if first and self._wake is not None:
            self._wake()


def _parts(block: NDArray[np.uint8]) -> Parts:
    """The bytes of a block, layer by layer."""
    return [memoryview(page) for page in block]
