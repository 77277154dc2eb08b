"""kvikio's functions that Tandem calls, by the signatures of its release 26.10, over the host.

As in its compatibility mode, buffers may be in host memory. Reads are done when they are asked for,
or, to see who waits, only when their future is.
"""

import os
import sys
from collections.abc import Callable
from enum import Enum
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest


class CompatMode(Enum):
    OFF = 0
    ON = 1
    AUTO = 2


class IOFuture:
    def __init__(self, read: "FakeRead") -> None:
        self._read = read

    def get(self) -> int:
        return self._read.done()

    def done(self) -> bool:
        return self._read.size is not None


class FakeRead:
    def __init__(
        self, descriptor: int, place: "memoryview[int]", offset: int, most: int, fails: bool
    ) -> None:
        self._given = descriptor, place, offset
        self._most, self._fails = most, fails
        self.size: int | None = None

    def done(self) -> int:
        descriptor, place, offset = self._given
        if self._fails:
            self.size = 0
            raise RuntimeError("cuFile error at: CU_FILE_IO_ERROR")
        if self.size is None:
            self.size = os.preadv(descriptor, [place[: self._most]], offset)
        return self.size


class FakeKvikio(ModuleType):
    """The module.

    Attributes:
        reads: (path, offset, bytes, address) of each.
        most_bytes: of a read, what comes at most.
        refused_reads, failing_reads: by number, those that do not begin, and those that end badly.
        foreign: of a path, whether cuFile refuses its file system; such a file is read through host
            memory if it may be, as kvikio decides for each by itself.
        through_host: paths of files opened so.
    """

    def __init__(self) -> None:
        super().__init__("kvikio")
        self.reads: list[tuple[str, int, int, int]] = []
        self.open_files = 0
        self.most_bytes = 1 << 40
        self.refused_reads: set[int] = set()
        self.failing_reads: set[int] = set()
        self.foreign: Callable[[str], bool] = lambda path: False
        self.through_host: list[str] = []
        self.compat_mode = False
        self.driver = {"is_gds_available": True, "allow_compat_mode": False}
        self.settings: dict[str, Any] = {}
        fake = self

        class CuFile:
            def __init__(self, file: Path | str, flags: str = "r") -> None:
                assert flags == "r"
                if fake.foreign(str(file)):
                    if fake.settings.get("compat_mode") is CompatMode.OFF:
                        raise RuntimeError("cuFile error at: x.cpp:7:\nfile system not supported")
                    fake.through_host.append(str(file))
                self._path = str(file)
                self._reads: list[FakeRead] = []
                self._descriptor = os.open(file, os.O_RDONLY)
                fake.open_files += 1

            def pread(
                self,
                buf: Any,
                size: int | None = None,
                file_offset: int = 0,
                task_size: int | None = None,
            ) -> IOFuture:
                array = np.asarray(buf)
                assert array.dtype == np.uint8
                assert size == array.size
                number = len(fake.reads)
                if number in fake.refused_reads:
                    raise RuntimeError("CUDA error at: out of memory")
                address = int(array.__array_interface__["data"][0])
                fake.reads.append((self._path, file_offset, array.size, address))
                fails = number in fake.failing_reads
                read = FakeRead(self._descriptor, array.data, file_offset, fake.most_bytes, fails)
                self._reads.append(read)
                return IOFuture(read)

            def fileno(self) -> int:
                return self._descriptor

            def close(self) -> None:
                assert all(read.size is not None for read in self._reads), "reads are under way"
                os.close(self._descriptor)
                fake.open_files -= 1

        self.CuFile, self.CompatMode = CuFile, CompatMode
        self.defaults = ModuleType("kvikio.defaults")
        self.defaults.set = self.settings.__setitem__  # type: ignore[attr-defined]
        self.defaults.is_compat_mode_preferred = lambda: self.compat_mode  # type: ignore[attr-defined]
        self.cufile_driver = ModuleType("kvikio.cufile_driver")
        self.cufile_driver.get = self.driver.__getitem__  # type: ignore[attr-defined]


def install(monkeypatch: pytest.MonkeyPatch) -> FakeKvikio:
    """As if it were installed, on a machine with GPUDirect Storage."""
    fake = FakeKvikio()
    for module in (fake, fake.defaults, fake.cufile_driver):
        module.__spec__ = ModuleSpec(module.__name__, None)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return fake
