import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fakes.answerer import answer_body, line_numbers, read_results

from tandem.jobs.counts import Counts
from tandem.jobs.lines import Line, Place
from tandem.jobs.record import JobRecord, journal_path, open_record
from tandem.jobs.request_line import LineError
from tandem.jobs.storage_error import StorageError
from tandem.spec.errors import ConfigError

IDENTITY = {"input": "these bytes", "model": "this one", "--dtype": "auto"}

Open = Callable[..., JobRecord]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


@pytest.fixture
def reopen(path: Path) -> Open:
    """Open the record; one that is open is dropped, as by a killed process."""
    opened: list[JobRecord] = []

    def open_it(identity: dict[str, str] = IDENTITY, restart: bool = False) -> JobRecord:
        if opened:
            opened.pop().close()
        opened.append(open_record(path, identity, lambda: "0" * 16, lambda: 0.0, restart))
        return opened[0]

    return open_it


def line(number: int) -> Line:
    """Lines of ten bytes."""
    return Line(Place(number, 10 * (number - 1)), Place(number + 1, 10 * number), b"x")


def answer(record: JobRecord, number: int) -> None:
    record.finish(record.results.answer(number, f"id {number}", answer_body("x", 3, 5)))


def test_the_mark_is_the_first_line_without_a_result(reopen: Open) -> None:
    record = reopen()
    assert record.mark == Place(1, 0)
    assert all(record.begin(line(number)) for number in (1, 2, 3))
    answer(record, 2)
    assert record.mark == Place(1, 0)
    answer(record, 1)
    assert record.mark == Place(3, 20)
    answer(record, 3)
    assert (record.mark, record.has_unfinished) == (Place(4, 30), False)


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_resumed_job_skips_what_is_done(reopen: Open, is_committed: bool) -> None:
    record = reopen()
    for number in (1, 2, 3):
        record.begin(line(number))
    answer(record, 3)
    answer(record, 1)
    if is_committed:
        record.commit()
    record = reopen()
    assert record.mark == (Place(2, 10) if is_committed else Place(1, 0))
    begun = {n: record.begin(line(n)) for n in range(record.mark.number, 5)}
    expected = {2: True, 3: False, 4: True}
    assert begun == (expected if is_committed else {1: False, **expected})
    assert (record.counts.num_ok, record.counts.num_prompt_tokens) == (2, 6)


def test_results_behind_the_mark_are_found_however_many_there_are(reopen: Open) -> None:
    record = reopen()
    for number in range(1, 1001):
        record.begin(line(number))
    for number in range(2, 1001):
        answer(record, number)
    record.commit()
    record = reopen()
    assert record.mark == Place(1, 0)
    assert [n for n in range(1, 1002) if record.begin(line(n))] == [1, 1001]


def test_a_torn_result_is_cut_off(reopen: Open, path: Path) -> None:
    record = reopen()
    record.begin(line(1))
    record.begin(line(2))
    answer(record, 1)
    whole = path.read_bytes()
    with path.open("ab") as end:
        end.write(whole.replace(b"_1", b"_2")[:-1])  # all but the newline
    record = reopen()
    assert path.read_bytes() == whole
    assert [record.begin(line(n)) for n in (1, 2)] == [False, True]


@pytest.mark.parametrize("garbage", [b"\0" * 5000 + b"\n", b"{}\n", b"\n", b"text"])
def test_garbage_behind_the_last_commit_is_cut_off(
    reopen: Open, path: Path, garbage: bytes
) -> None:
    """A power cut can leave a file longer than what was written into it."""
    record = reopen()
    record.begin(line(1))
    answer(record, 1)
    record.commit()
    whole = path.read_bytes()
    with path.open("ab") as end:
        end.write(garbage)
    reopen()
    assert path.read_bytes() == whole


def test_a_result_that_is_there_twice_is_cut_off(reopen: Open, path: Path) -> None:
    record = reopen()
    record.begin(line(1))
    answer(record, 1)
    whole = path.read_bytes()
    path.write_bytes(whole * 2)
    assert reopen().counts.num_ok == 1
    assert path.read_bytes() == whole


def test_faults_and_refusals_are_counted_after_a_crash_too(reopen: Open) -> None:
    record = reopen()
    record.begin(line(1))
    record.finish(record.results.fault(1, LineError("code", "text")))
    assert reopen().counts == Counts(num_failed=1)


@pytest.mark.parametrize("is_committed", [True, False])
def test_custom_ids_belong_to_their_first_line(reopen: Open, is_committed: bool) -> None:
    record = reopen()
    for number in (1, 2):
        record.begin(line(number))
    assert [record.claim("a", 1), record.claim("b", 2), record.claim("a", 2)] == [1, 2, 1]
    if is_committed:
        record.commit()
    record = reopen()
    assert [record.claim("a", 1), record.claim("b", 2), record.claim("a", 7)] == [1, 2, 1]


def test_a_complete_job_is_small_and_stays_complete(reopen: Open, path: Path) -> None:
    record = reopen()
    for number in range(1, 2001):
        record.begin(line(number))
        record.claim(f"id {number}", number)
        answer(record, number)
    record.commit(is_complete=True)
    counts = record.counts
    record.close()
    journal = journal_path(path)
    assert journal.stat().st_size < 64 * 1024
    assert list(path.parent.iterdir()) == [path, journal] or set(path.parent.iterdir()) == {
        path,
        journal,
    }
    record = open_record(path, IDENTITY, lambda: "1" * 16, lambda: 5.0)
    assert (record.is_complete, record.counts) == (True, counts)


@pytest.mark.parametrize("name", ["input", "model", "--dtype"])
def test_another_job_is_refused_by_name(reopen: Open, name: str) -> None:
    reopen()
    with pytest.raises(ConfigError) as refused:
        reopen({**IDENTITY, name: "another"})
    assert refused.value.message.startswith(refused.value.message.split(" was begun")[0])
    assert f"another {name};" in refused.value.message
    assert "--restart" in refused.value.message


def test_restart_drops_everything(reopen: Open, path: Path) -> None:
    record = reopen()
    record.begin(line(1))
    record.claim("a", 1)
    answer(record, 1)
    record.commit(is_complete=True)
    record = reopen({**IDENTITY, "model": "another"}, restart=True)
    assert (path.read_bytes(), record.is_complete, record.counts) == (b"", False, Counts())
    assert record.claim("a", 2) == 2


def test_an_output_without_a_journal_is_refused(path: Path, reopen: Open) -> None:
    path.write_text("precious\n")
    with pytest.raises(ConfigError, match="has no journal"):
        reopen()
    assert path.read_text() == "precious\n"
    reopen(restart=True)
    assert path.read_text() == ""


@pytest.mark.parametrize("left", [0, 5])
@pytest.mark.parametrize("is_complete", [True, False])
def test_an_output_that_lost_results_is_refused(
    path: Path, reopen: Open, left: int, is_complete: bool
) -> None:
    record = reopen()
    record.begin(line(1))
    answer(record, 1)
    record.commit(is_complete)
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(ConfigError, match="not as the job left it"):
        reopen()


def test_an_output_that_was_edited_is_refused(path: Path, reopen: Open) -> None:
    record = reopen()
    record.begin(line(1))
    answer(record, 1)
    record.commit()
    path.write_bytes(b" " + path.read_bytes())
    with pytest.raises(ConfigError, match="not as the job left it"):
        reopen()


@pytest.mark.parametrize(
    "content", [b"not a database" * 100, b"SQLite format 3\0" + b"\xff" * 5000]
)
def test_a_damaged_journal_is_refused(path: Path, reopen: Open, content: bytes) -> None:
    journal_path(path).write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be read"):
        reopen()
    reopen(restart=True)


def test_a_journal_of_another_format_is_refused(path: Path, reopen: Open) -> None:
    reopen().close()
    with sqlite3.connect(journal_path(path)) as database:
        database.execute("UPDATE job SET format = 99")
    database.close()
    with pytest.raises(ConfigError, match="format 99"):
        open_record(path, IDENTITY, lambda: "0" * 16, lambda: 0.0)


def test_a_journal_that_was_never_begun_counts_as_none(path: Path, reopen: Open) -> None:
    """A crash between the file's creation and its first transaction."""
    journal_path(path).touch()
    assert reopen().mark == Place(1, 0)


def test_the_time_of_all_runs_counts(path: Path) -> None:
    now = 100.0
    record = open_record(path, IDENTITY, lambda: "0" * 16, lambda: now)
    now = 107.0
    record.commit()
    record.close()
    now = 1000.0
    record = open_record(path, IDENTITY, lambda: "0" * 16, lambda: now)
    now = 1003.0
    assert record.counts.elapsed_s == 10.0


def test_a_full_disk_under_the_journal(reopen: Open, path: Path) -> None:
    """SQLite gives the whole transaction up; nothing of what follows is kept without it."""
    record = reopen()
    for number in range(1, 2001):
        record.begin(line(number))
    for number in range(1, 11):
        answer(record, number)
    record.commit()
    record._journal._database.execute("PRAGMA max_page_count = 10")

    def go_on() -> None:
        for number in range(11, 2001):
            record.claim(f"id {number}", number)
            answer(record, number)

    with pytest.raises(StorageError, match="is full"):
        go_on()
    with pytest.raises(StorageError):
        record.commit()
    results = line_numbers(read_results(path))
    record = reopen()
    assert record.counts.num_ok == len(results) > 10
    numbers = range(record.mark.number, 2001)
    done = [number for number in numbers if not record.begin(line(number))]
    assert done == [number for number in results if number >= numbers[0]]
