import errno
import os
from pathlib import Path

import pytest

from tandem.jobs.output_file import OutputFile
from tandem.jobs.storage_error import StorageError
from tandem.spec.errors import ConfigError


def test_one_run_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    first = OutputFile(path)
    with pytest.raises(ConfigError, match="another run is writing"):
        OutputFile(path)
    first.close()
    OutputFile(path).close()


@pytest.mark.parametrize("path", ["folder", "pipe", "no/such/folder/out.jsonl"])
def test_what_cannot_be_written_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError):
        OutputFile(tmp_path / path)


def test_it_grows_and_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"one\n")
    output = OutputFile(path)
    output.append(b"two\n")
    output.sync()
    assert path.read_bytes() == b"one\ntwo\n"
    assert [(line.data, line.end.offset) for line in output.lines_from(4)] == [(b"two", 8)]
    assert [output.ends_line_at(offset) for offset in (0, 3, 4, 8)] == [True, False, True, True]
    output.cut(4)
    output.append(b"three\n")
    assert path.read_bytes() == b"one\nthree\n"


def test_a_full_disk_leaves_nothing_of_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk takes three bytes at a time, and is full after seven."""
    real = os.pwrite

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        if offset >= 7:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data[:3], offset)

    path = tmp_path / "out.jsonl"
    output = OutputFile(path)
    monkeypatch.setattr(os, "pwrite", pwrite)
    output.append(b"12345\n")
    with pytest.raises(StorageError, match="No space left on device"):
        output.append(b"12345\n")
    assert (path.read_bytes(), output.size_bytes) == (b"12345\n", 6)
    monkeypatch.undo()
    output.append(b"67\n")
    assert path.read_bytes() == b"12345\n67\n"
