"""A job that crashes anywhere, again and again, does every line exactly once."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.fakes.answerer import answer_body, line_numbers, read_results

from tandem.jobs.lines import Line, Place
from tandem.jobs.record import JobRecord, journal_path, open_record
from tandem.jobs.request_line import LineError
from tandem.jobs.result_line import ResultLine

LINE_BYTES = 10
FRACTION = st.floats(0, 1)


class CrashMachine(RuleBasedStateMachine):
    """Drives a record as the runner does. A crash goes on in a copy of the files as they were."""

    def __init__(self) -> None:
        super().__init__()
        # In memory where there is such a place: only the journal's own synchronizing costs time.
        memory = Path("/dev/shm")
        self.root = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
        self.safe_output_bytes = 0
        self.synchronizing = patch("os.fdatasync", self._note_synchronized)
        self.synchronizing.start()
        self.num_lives = 0
        self.custom_ids: list[str] = []
        self.done: set[int] = set()

    def teardown(self) -> None:
        try:
            if self.custom_ids:
                self._check_all_is_done_once()
        finally:
            self.synchronizing.stop()
            shutil.rmtree(self.root)

    def _note_synchronized(self, fd: int) -> None:
        self.safe_output_bytes = os.fstat(fd).st_size

    @initialize(ids=st.lists(st.sampled_from("abcdefghijkl"), min_size=1, max_size=25))
    def begin(self, ids: list[str]) -> None:
        self.custom_ids = ids
        self._open(self._folder())

    @precondition(lambda self: self.next_line <= len(self.custom_ids))
    @rule()
    def read(self) -> None:
        number = self.next_line
        self.next_line += 1
        start, end = _place(number), _place(number + 1)
        is_new = self.record.begin(Line(start, end, b"x"))
        first = self.record.claim(self.custom_ids[number - 1], number)
        assert is_new == (number not in self.done)
        assert (first == number) == self._is_first(number)
        if not is_new:
            self.record.skip(number)
        elif first != number:
            self.record.finish(self._result(number))
            self.done.add(number)
        else:
            self.in_flight.append(number)

    @precondition(lambda self: self.in_flight)
    @rule(which=FRACTION)
    def finish(self, which: float) -> None:
        number = self._pop(which)
        self.record.finish(self._result(number))
        self.done.add(number)

    @rule()
    def commit(self) -> None:
        self.record.commit()
        self.safe_log = _read(_log(self.output))

    @rule()
    def kill(self) -> None:
        self._crash(self.output.read_bytes(), _read(_log(self.output)))

    @precondition(lambda self: self.in_flight)
    @rule(which=FRACTION, share=FRACTION)
    def kill_while_a_result_is_written(self, which: float, share: float) -> None:
        data = self._result(self._pop(which)).data
        torn = data[: round(share * (len(data) - 1))]
        self._crash(self.output.read_bytes() + torn, _read(_log(self.output)))

    @rule(share=FRACTION)
    def kill_while_the_journal_is_written(self, share: float) -> None:
        before = _read(_log(self.output))
        self.record.commit()
        after = _read(_log(self.output))
        written = round(share * len(after))
        self._crash(self.output.read_bytes(), after[:written] + before[written:])

    @rule(share=FRACTION, log_share=FRACTION)
    def cut_the_power(self, share: float, log_share: float) -> None:
        """What was not synchronized is lost, from any byte on."""
        data, log = self.output.read_bytes(), _read(_log(self.output))
        safe_log_bytes = len(self.safe_log)
        assert log[:safe_log_bytes] == self.safe_log
        self._crash(
            data[: _between(self.safe_output_bytes, len(data), share)],
            log[: _between(safe_log_bytes, len(log), log_share)],
        )

    def _crash(self, output: bytes, log: bytes) -> None:
        old, folder = self.output, self._folder()
        shutil.copy(journal_path(old), journal_path(folder / old.name))
        (folder / old.name).write_bytes(output)
        _log(folder / old.name).write_bytes(log)
        self.record.close()
        self._open(folder)

    def _open(self, folder: Path) -> None:
        self.output = folder / "out.jsonl"
        whole = self.output.read_bytes().rpartition(b"\n")[0] if self.output.exists() else b""
        self.record: JobRecord = open_record(
            self.output, {"input": "x"}, lambda: "0" * 16, lambda: 0.0
        )
        results = read_results(self.output)
        assert len(results) == len(whole.splitlines())  # every whole line was kept
        self.done = set(line_numbers(results))
        assert self.record.counts.num_done == len(results)
        mark = self.record.mark
        assert mark == _place(mark.number)
        assert self.done >= set(range(1, mark.number))
        self.next_line = mark.number
        self.in_flight: list[int] = []
        self.safe_output_bytes = 0
        self.commit()

    def _check_all_is_done_once(self) -> None:
        while self.next_line <= len(self.custom_ids):
            self.read()
        while self.in_flight:
            self.finish(0.0)
        assert not self.record.has_unfinished
        self.record.commit(is_complete=True)
        results = read_results(self.output)
        assert sorted(line_numbers(results)) == list(range(1, len(self.custom_ids) + 1))
        for result, number in zip(results, line_numbers(results), strict=True):
            assert result["custom_id"] == self.custom_ids[number - 1]
            assert (result["error"] is None) == self._is_first(number)
        assert self.record.is_complete
        self.record.close()

    def _result(self, number: int) -> ResultLine:
        custom_id = self.custom_ids[number - 1]
        if self._is_first(number):
            return self.record.results.answer(number, custom_id, answer_body("x" * number))
        error = LineError("duplicate_custom_id", "text", custom_id)
        return self.record.results.fault(number, error)

    def _is_first(self, number: int) -> bool:
        return self.custom_ids.index(self.custom_ids[number - 1]) == number - 1

    def _pop(self, which: float) -> int:
        return self.in_flight.pop(min(int(which * len(self.in_flight)), len(self.in_flight) - 1))

    def _folder(self) -> Path:
        self.num_lives += 1
        folder = self.root / str(self.num_lives)
        folder.mkdir()
        return folder


def _place(number: int) -> Place:
    return Place(number, LINE_BYTES * (number - 1))


def _log(output: Path) -> Path:
    """The journal's write-ahead log."""
    journal = journal_path(output)
    return journal.with_name(journal.name + "-wal")


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _between(low: int, high: int, share: float) -> int:
    return low + round(share * (high - low))


TestCrashes: Any = CrashMachine.TestCase
TestCrashes.settings = settings(max_examples=30, stateful_step_count=40)
