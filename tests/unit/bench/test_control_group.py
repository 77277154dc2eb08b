"""Control groups of single processes, in fake trees: the real ones may not be written here."""

import os
import subprocess
from pathlib import Path

import pytest

from tandem.bench.control_group import ControlGroup, mapped_elsewhere_bytes
from tandem.spec.errors import ConfigError

MOUNT = "sys/fs/cgroup/memory"
PEAK = "memory.max_usage_in_bytes"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A process in a group of version 1."""
    own = tmp_path / MOUNT / "job"
    own.mkdir(parents=True)
    (own / "memory.usage_in_bytes").write_text("4096\n")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("4:memory:/job\n0::/\n")
    return tmp_path


def kernel_fills(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups get their files when they are made, as the kernel does, and lose them at the end."""
    make, remove = Path.mkdir, Path.rmdir

    def mkdir(path: Path) -> None:
        make(path)
        (path / PEAK).write_text("123456\n")

    def rmdir(path: Path) -> None:
        for file in path.iterdir():
            file.unlink()
        remove(path)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(Path, "rmdir", rmdir)


def test_a_process_joins_before_it_begins(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_fills(monkeypatch)
    group = ControlGroup("one", root)
    folder = root / MOUNT / "job/one"
    done = subprocess.run(
        group.command("sh", "-c", "echo $$ $1", "sh", "a word"), capture_output=True, text=True
    )
    joined = (folder / "cgroup.procs").read_text().strip()
    assert done.stdout.split() == [joined, "a", "word"]
    assert joined != str(os.getpid())
    assert group.peak_bytes() == 123456
    group.remove()
    assert not folder.exists()


def test_where_memory_is_not_accounted_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no control group that accounts memory; leave --cgroup"):
        ControlGroup("one", tmp_path)


def test_a_group_that_is_not_accounted_is_refused_and_removed(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"have no memory\.max_usage_in_bytes"):
        ControlGroup("one", root)  # nobody fills it
    assert not (root / MOUNT / "job/one").exists()


def test_a_group_that_cannot_be_made_is_refused(root: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be made"):
        ControlGroup("none/one", root)


@pytest.mark.parametrize("name", ["mapped_file", "file_mapped"])
def test_libraries_that_another_group_read_are_told(root: Path, name: str) -> None:
    (root / "proc/self/status").write_text("Name:\tpython\nRssFile:\t     96 kB\n")
    stat = root / MOUNT / "job/memory.stat"
    stat.write_text(f"cache 1000000\n{name} 8192\n")
    assert mapped_elsewhere_bytes(root) == 88 * 1024
    stat.write_text(f"{name} {1 << 20}\n")  # what others of the group map counts as well
    assert mapped_elsewhere_bytes(root) == 0
