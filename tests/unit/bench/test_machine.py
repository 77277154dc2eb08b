"""By which commit a record says that it was made."""

import subprocess
from pathlib import Path

from tandem.bench.machine import git_commit


def test_a_record_that_was_just_written_is_no_change_of_what_is_measured(tmp_path: Path) -> None:
    """Else a part that goes on would take what it found before for another commit's."""

    def git(*words: str) -> str:
        name = ("-c", "user.name=a", "-c", "user.email=a@b")
        command = ["git", "-C", str(tmp_path), *name, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init")
    (tmp_path / "code.py").write_text("1")
    git("add", ".")
    git("commit", "-m", "code")
    commit = git("rev-parse", "HEAD")
    assert git_commit(tmp_path) == commit
    folder = tmp_path / "benchmarks" / "results" / "a-gpu"
    folder.mkdir(parents=True)
    (folder / "check.json").write_text("{}")
    assert git_commit(tmp_path) == commit
    (tmp_path / "code.py").write_text("2")
    assert git_commit(tmp_path) == f"{commit}-dirty"


def test_without_a_repository_there_is_no_commit(tmp_path: Path) -> None:
    assert git_commit(tmp_path) is None
