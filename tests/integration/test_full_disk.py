"""A disk that is really full: a small tmpfs, in a mount namespace of its own."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.answerer import line_numbers, read_results, request_line

NUM_LINES = 400
_NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")
_MOUNTED = 'mount -t tmpfs -o size="$1" tmpfs "$2" && shift 2 && exec "$@"'


def on_small_disk(size: str, disk: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    """Run a command that finds a tmpfs of this size at `disk`; nobody else does."""
    disk.mkdir()
    return subprocess.run(
        [*_NAMESPACE, "sh", "-c", _MOUNTED, "sh", size, str(disk), *command],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture(scope="module", autouse=True)
def namespace(tmp_path_factory: pytest.TempPathFactory) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("a small disk needs the command unshare")
    done = on_small_disk("64k", tmp_path_factory.mktemp("probe") / "disk", "true")
    if done.returncode:
        pytest.skip(f"no tmpfs may be mounted here: {done.stderr.strip()}")


def run_case(case: str, size: str, folder: Path) -> dict[str, Any]:
    disk = folder / "disk"
    program = (sys.executable, "-m", "tests.fakes.full_disk", case, str(disk), str(folder))
    done = on_small_disk(size, disk, *program)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("case", "size", "named"),
    [
        ("all", "4k", "out.jsonl.journal: .*full"),  # not even the journal's first page
        ("all", "128k", "No space left|full"),
        ("journal", "96k", "out.jsonl.journal: .*full"),
    ],
)
def test_a_job_stops_and_goes_on_when_there_is_room(
    case: str, size: str, named: str, tmp_path: Path
) -> None:
    lines = [request_line(f"r{number}") for number in range(1, NUM_LINES + 1)]
    (tmp_path / "in.jsonl").write_bytes(b"".join(lines))
    happened = run_case(case, size, tmp_path)
    for error in happened["errors"]:
        assert error.startswith("cannot write")
        assert "make room and run the same command" in error
    assert re.search(named, happened["errors"][0])
    kept = happened["kept"].encode()
    assert not kept or kept.endswith(b"\n")
    results = (tmp_path / "results").read_bytes()
    assert results.startswith(kept)
    assert sorted(line_numbers(read_results(tmp_path / "results"))) == list(range(1, NUM_LINES + 1))
    (tmp_path / "kept").write_bytes(kept)
    done = line_numbers(read_results(tmp_path / "kept"))
    answered = [int(line) for line in (tmp_path / "engine.log").read_text().splitlines()]
    assert sorted(answered) == sorted(set(range(1, NUM_LINES + 1)) - set(done))


def test_weights_that_no_longer_find_room_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    happened = run_case("spool", "256k", tmp_path)
    assert "No space left on device" in happened["error"]
    assert "--spool-dir" in happened["error"]
    assert happened["param"] == "spool_dir"
