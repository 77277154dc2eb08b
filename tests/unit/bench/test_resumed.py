"""Which record a run of `tandem bench offline` goes on with, and what it keeps of it."""

from pathlib import Path

import pytest

from tandem.bench.offline.resumed import done_before
from tandem.bench.records import BenchRecord, BenchRow, write_record
from tandem.spec.errors import ConfigError

MACHINE = {"cpu": "one", "git_commit": "abc", "load_average": 3.5}
COMMAND = "tandem bench offline --few-bits --layers 4 --seed 8 --json a.json"
ROW = BenchRow("a cell", "virtual auto", "throughput", 1.0, "tokens/s", None, (1.0, 1.0))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "a.json"
    notes = ("b: left out", "unfinished: 1 of 6 cells")
    write_record(BenchRecord("offline", COMMAND, MACHINE, (ROW,), notes), found)
    return found


@pytest.mark.parametrize("field", ["git_commit", "cpu"])
def test_rows_of_another_machine_or_commit_are_not_gone_on_with(path: Path, field: str) -> None:
    with pytest.raises(ConfigError, match=f"another '{field}'.*resume on its machine"):
        done_before(path, COMMAND, {**MACHINE, field: "other"})


def test_what_is_gone_on_with_keeps_its_command_load_and_notes(path: Path) -> None:
    done = done_before(path, COMMAND, {**MACHINE, "load_average": 9.0})
    assert done.rows == (ROW,)
    assert done.notes == ("b: left out", f"before: {COMMAND}, at a load average of 3.5")


@pytest.mark.parametrize(
    "command",
    [
        "tandem bench offline --seed=8 --few-bits --layers 4 --resume --json=b.json",
        "tandem bench offline --few-bits --layers 4 --seed 8 --only=t4 --only a4000 --resume",
    ],
)
def test_the_same_flags_may_be_typed_otherwise(path: Path, command: str) -> None:
    assert done_before(path, command, MACHINE).rows == (ROW,)


@pytest.mark.parametrize(
    "command",
    [
        "tandem bench offline --few-bits --layers 8 --seed 4 --resume",
        "tandem bench offline --layers 4 --seed 8 --resume",
        "tandem bench offline --few-bits --layers 4 --seed 8 --no-host --resume",
    ],
)
def test_values_belong_to_their_flags(path: Path, command: str) -> None:
    with pytest.raises(ConfigError, match="was written by another command"):
        done_before(path, command, MACHINE)


def test_where_there_is_no_record_nothing_is_done(tmp_path: Path) -> None:
    done = done_before(tmp_path / "none.json", COMMAND, MACHINE)
    assert (done.rows, done.notes) == ((), ())
