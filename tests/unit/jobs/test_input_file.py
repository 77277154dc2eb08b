import errno
import hashlib
import os
from pathlib import Path

import pytest

from tandem.jobs.input_file import InputFile
from tandem.jobs.lines import Place
from tandem.spec.errors import ConfigError
from tandem.spec.progress import no_progress


def test_facts(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    data = b"\xef\xbb\xbfa\n\n" + b"b" * 3_000_000 + b"\nc"
    path.write_bytes(data)
    progress: list[tuple[int, int]] = []
    facts = InputFile(path, 1000).scan(lambda what, done, total: progress.append((done, total)))
    assert facts.num_lines == 3
    assert facts.size_bytes == len(data)
    assert facts.digest == hashlib.sha256(data).hexdigest()
    assert progress[-1] == (len(data), len(data))


def test_lines_from_a_place(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"a\nbc\nd\n")
    file = InputFile(path, 100)
    assert [line.data for line in file.lines(Place(3, 5))] == [b"d"]
    assert [line.start for line in file.lines(Place(2, 2))] == [Place(2, 2), Place(3, 5)]


@pytest.mark.parametrize("kind", ["-", "missing", "folder", "pipe"])
def test_what_cannot_be_read_again_is_refused(tmp_path: Path, kind: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError) as refused:
        InputFile(Path("-") if kind == "-" else tmp_path / kind, 100)
    assert refused.value.param == "input_file"
    assert (kind == "missing") == ("No such file" in refused.value.message)


@pytest.mark.parametrize("change", ["append", "truncate", "rewrite"])
def test_a_change_while_it_is_read_is_noticed(tmp_path: Path, change: str) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes((b"x" * 999 + b"\n") * 2500)
    file = InputFile(path, 1000)
    file.scan(no_progress)
    lines = file.lines(Place())
    next(lines)
    if change == "append":
        with path.open("ab") as end:
            end.write(b"more\n")
    elif change == "truncate":
        os.truncate(path, 2_000_000)
    else:
        with path.open("r+b") as start:
            start.write(b"LINE\n")
        os.utime(path, ns=(0, 0))
    with pytest.raises(ConfigError, match="was changed"):
        list(lines)


def test_a_disk_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes((b"x" * 999 + b"\n") * 2500)
    file = InputFile(path, 1000)
    whole = os.preadv

    def damaged(fd: int, buffers: list[memoryview], offset: int) -> int:
        if offset > 1_000_000:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return whole(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", damaged)
    lines = file.lines(Place())
    assert next(lines).data == b"x" * 999
    with pytest.raises(ConfigError, match=r"in\.jsonl: Input/output error; copy it"):
        list(lines)
