import asyncio
import logging
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.answerer import (
    ScriptedAnswerer,
    line_numbers,
    read_results,
    request_line,
    write_requests,
)

from tandem.api.errors import ApiError
from tandem.jobs.answerer import Load
from tandem.jobs.input_file import InputFile
from tandem.jobs.record import JobRecord, open_record
from tandem.jobs.request_line import RequestLine
from tandem.jobs.runner import JobRunner
from tandem.jobs.storage_error import StorageError, storage_error
from tandem.jobs.window import Window
from tandem.spec.errors import ContextLengthError, EngineDeadError, RequestError, TandemError


class Job:
    """One job's files, and its runs."""

    def __init__(self, folder: Path) -> None:
        self.input, self.output = folder / "in.jsonl", folder / "out.jsonl"

    async def run(
        self,
        answerer: ScriptedAnswerer,
        max_sequences: int = 8,
        begun: Callable[[JobRunner, JobRecord], object] = lambda runner, record: None,
        commit_interval_s: float = 1.0,
    ) -> bool:
        file = InputFile(self.input, 1000)
        with open_record(self.output, {}, lambda: "0" * 16, lambda: 0.0) as record:
            lines = file.lines(record.mark)
            window = Window(max_sequences, 10**9)
            runner = JobRunner(record, lines, answerer, window, lambda: None, commit_interval_s)
            begun(runner, record)
            try:
                return await runner.run()
            finally:
                file.close()

    def results(self) -> list[dict[str, Any]]:
        return read_results(self.output)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


async def slowly(request: RequestLine) -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.asyncio
async def test_every_line_gets_its_own_answer(job: Job) -> None:
    write_requests(job.input, [f"r{n}" for n in range(1, 51)])

    answerer = ScriptedAnswerer(slowly)
    assert await job.run(answerer)
    results = job.results()
    assert sorted(line_numbers(results)) == list(range(1, 51))
    for result, number in zip(results, line_numbers(results), strict=True):
        assert result["custom_id"] == f"r{number}"
        assert result["response"]["body"]["text"] == f"answer to r{number}"
    assert answerer.started == list(range(1, 51))  # in the input's order, for shared prefixes
    assert answerer.max_running == 8


@pytest.mark.asyncio
async def test_results_come_in_the_order_in_which_they_are_finished(job: Job) -> None:
    write_requests(job.input, [f"r{n}" for n in range(1, 11)])
    gate = asyncio.Event()

    async def think(request: RequestLine) -> None:
        if request.number == 1:
            await gate.wait()
        if request.number == 10:
            gate.set()

    assert await job.run(ScriptedAnswerer(think))
    assert line_numbers(job.results())[0] == 2
    assert line_numbers(job.results())[-1] == 1


@pytest.mark.asyncio
async def test_the_window_stays_full(job: Job) -> None:
    """While one request takes long, the others go on beside it."""
    write_requests(job.input, [f"r{n}" for n in range(1, 101)])
    others = 0

    async def think(request: RequestLine) -> None:
        nonlocal others
        while request.number == 1 and others < 99:
            await asyncio.sleep(0)
        others += 1

    assert await job.run(ScriptedAnswerer(think), max_sequences=2)


@pytest.mark.asyncio
async def test_faults_stay_with_their_lines(job: Job) -> None:
    lines = [
        request_line("good"),
        b"\xff\n",
        b"\n",
        b"{" + b" " * 2000 + b"}\n",
        request_line("good"),
        request_line("refused"),
        request_line("too long"),
        request_line("broken"),
        request_line("fails"),
        request_line("last")[:-1],
    ]
    job.input.write_bytes(b"".join(lines))

    def prepare(request: RequestLine) -> None:
        errors: dict[str, Exception] = {
            "refused": ApiError(404, "no such model"),
            "too long": ContextLengthError("too many tokens"),
            "broken": ZeroDivisionError("broken on purpose"),
        }
        if error := errors.get(request.custom_id):
            raise error

    async def think(request: RequestLine) -> None:
        if request.custom_id == "fails":
            raise TandemError("the engine failed it")

    logging.getLogger("tandem.jobs.runner").disabled = True
    try:
        assert await job.run(ScriptedAnswerer(think, prepare))
    finally:
        logging.getLogger("tandem.jobs.runner").disabled = False
    results = dict(zip(line_numbers(job.results()), job.results(), strict=True))
    assert sorted(results) == [1, 2, 4, 5, 6, 7, 8, 9, 10]
    codes = {n: r["error"]["code"] for n, r in results.items() if r["error"]}
    assert codes == {2: "invalid_json_line", 4: "line_too_long", 5: "duplicate_custom_id"}
    assert results[5]["custom_id"] == "good"
    statuses = {n: r["response"]["status_code"] for n, r in results.items() if r["response"]}
    assert statuses == {1: 200, 6: 404, 7: 400, 8: 500, 9: 500, 10: 200}
    assert results[7]["response"]["body"]["error"]["code"] == "context_length_exceeded"
    assert "on purpose" not in str(results[8])


@pytest.mark.asyncio
async def test_an_answer_that_json_cannot_express_fails_its_line(job: Job) -> None:
    write_requests(job.input, ["a", "b"])

    class Infinite(ScriptedAnswerer):
        def prepare(self, request: RequestLine) -> Any:
            prepared = super().prepare(request)
            run = prepared.run

            async def changed() -> dict[str, Any]:
                return {**await run(), "logprob": float("-inf")}

            prepared.run = changed
            return prepared

    logging.getLogger("tandem.jobs.runner").disabled = True
    try:
        assert await job.run(Infinite())
    finally:
        logging.getLogger("tandem.jobs.runner").disabled = False
    assert [result["response"]["status_code"] for result in job.results()] == [500, 500]


async def forever(request: RequestLine) -> None:
    await asyncio.Event().wait()


def unless(numbers: set[int]) -> Callable[[RequestLine], Any]:
    async def think(request: RequestLine) -> None:
        if request.number in numbers:
            await forever(request)

    return think


@pytest.mark.asyncio
async def test_draining_finishes_what_runs_and_begins_nothing(job: Job) -> None:
    write_requests(job.input, [f"r{n}" for n in range(1, 101)])
    runners: list[JobRunner] = []
    gate = asyncio.Event()
    told: list[int] = []

    async def think(request: RequestLine) -> None:
        if request.number == 8:
            told.append(runners[0].drain())
            gate.set()
        await gate.wait()

    answerer = ScriptedAnswerer(think)
    assert not await job.run(answerer, begun=lambda runner, record: runners.append(runner))
    assert told == [8]
    assert sorted(line_numbers(job.results())) == list(range(1, 9))
    rest = ScriptedAnswerer()
    assert await job.run(rest)
    assert rest.started == list(range(9, 101))


@pytest.mark.asyncio
async def test_stopping_gives_up_what_runs(job: Job) -> None:
    lines = [request_line(f"r{n}") for n in range(1, 21)]
    lines[9] = b"no request\n"
    job.input.write_bytes(b"".join(lines))
    runners: list[JobRunner] = []
    stuck = ScriptedAnswerer(unless({3, 5}))

    def begun(runner: JobRunner, record: JobRecord) -> None:
        runners.append(runner)
        asyncio.get_running_loop().call_later(0.05, runner.stop)

    assert not await job.run(stuck, begun=begun)
    assert stuck.num_running == 0
    assert sorted({*range(1, 21)} - {*line_numbers(job.results())}) == [3, 5]
    rest = ScriptedAnswerer()
    assert await job.run(rest)
    assert rest.started == [3, 5]
    assert sorted(line_numbers(job.results())) == list(range(1, 21))


@pytest.mark.asyncio
@pytest.mark.parametrize("while_preparing", [True, False])
async def test_a_dead_engine_ends_the_run_and_fails_no_line(
    job: Job, while_preparing: bool
) -> None:
    write_requests(job.input, [f"r{n}" for n in range(1, 21)])

    def die(request: RequestLine) -> None:
        if request.number == 10:
            raise EngineDeadError("the engine stopped")

    async def think(request: RequestLine) -> None:
        die(request)

    answerer = ScriptedAnswerer(prepare_hook=die) if while_preparing else ScriptedAnswerer(think)
    with pytest.raises(EngineDeadError):
        await job.run(answerer)
    assert all(result["response"]["status_code"] == 200 for result in job.results())
    assert 10 not in line_numbers(job.results())
    assert await job.run(ScriptedAnswerer())
    assert sorted(line_numbers(job.results())) == list(range(1, 21))


class Deadly(ScriptedAnswerer):
    """An engine that stops whenever it runs `r7`, beside others as alone."""

    def __init__(self) -> None:
        super().__init__(self._run)
        self.at_death: list[int] = []
        self._at_work: set[int] = set()

    async def _run(self, request: RequestLine) -> None:
        self._at_work.add(request.number)
        await slowly(request)
        if request.custom_id == "r7":
            self.at_death = sorted(self._at_work)
            raise EngineDeadError("the engine stopped")
        self._at_work.discard(request.number)


@pytest.mark.asyncio
async def test_a_request_that_always_stops_the_engine_gets_an_error_in_the_end(job: Job) -> None:
    write_requests(job.input, [f"r{n}" for n in range(1, 31)])
    alone: list[list[int]] = []
    for _ in range(3):
        deadly = Deadly()
        with pytest.raises(EngineDeadError):
            await job.run(deadly)
        alone.append(deadly.at_death)
    assert len(alone[0]) > 1
    assert alone[1:] == [[7], [7]]
    rest = Deadly()
    assert await job.run(rest)
    assert 7 not in rest.started
    results = dict(zip(line_numbers(job.results()), job.results(), strict=True))
    assert sorted(results) == list(range(1, 31))
    failed = [n for n, r in results.items() if r["response"]["status_code"] != 200]
    assert failed == [7]
    assert results[7]["response"]["body"]["error"]["code"] == "engine_dead"
    assert "3 times" in results[7]["response"]["body"]["error"]["message"]


@pytest.fixture
def limit_file_size() -> Iterator[Callable[[int], None]]:
    """Sets how large this process may make a file; a write beyond it fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size_bytes: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))

    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


class Talkative(ScriptedAnswerer):
    """Answers of 200 KiB to each line named `long`, with one line at a time."""

    def prepare(self, request: RequestLine) -> Any:
        prepared = super().prepare(request)
        run = prepared.run

        async def longer() -> dict[str, Any]:
            return {**await run(), "more": "x" * (200 << 10)}

        if request.custom_id.startswith("long"):
            prepared.run = longer
        return prepared


@pytest.mark.asyncio
async def test_a_result_without_room_becomes_its_line_s_error(
    job: Job, limit_file_size: Callable[[int], None]
) -> None:
    write_requests(job.input, [f"long {n}" if n % 5 == 0 else f"r{n}" for n in range(1, 21)])
    limit_file_size(300 << 10)
    assert await job.run(Talkative(), max_sequences=1)
    results = dict(zip(line_numbers(job.results()), job.results(), strict=True))
    assert sorted(results) == list(range(1, 21))
    failed = [n for n, r in results.items() if r["response"]["status_code"] != 200]
    assert failed == [10, 15, 20]
    error = results[10]["response"]["body"]["error"]
    assert (results[10]["response"]["status_code"], error["code"]) == (507, "storage_full")
    assert "File too large" in error["message"]


@pytest.mark.asyncio
async def test_without_room_for_an_error_the_run_ends_and_loses_nothing(
    job: Job, limit_file_size: Callable[[int], None]
) -> None:
    write_requests(job.input, [f"r{n}" for n in range(1, 2001)])
    limit_file_size(150 << 10)
    with pytest.raises(StorageError, match="File too large"):
        await job.run(ScriptedAnswerer(), commit_interval_s=60.0)
    done = line_numbers(job.results())
    assert 100 < len(done) < 2000
    limit_file_size(resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    rest = ScriptedAnswerer()
    assert await job.run(rest)
    assert sorted(done + rest.started) == list(range(1, 2001))
    failed = [r for r in job.results() if r["response"]["status_code"] != 200]
    assert len(failed) <= 8, "more than ran when the disk was full"


@pytest.mark.asyncio
@pytest.mark.parametrize("failing", ["finish", "commit"])
async def test_a_full_disk_ends_the_run_and_loses_nothing(
    job: Job, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    write_requests(job.input, [f"r{n}" for n in range(1, 101)])
    calls = 0
    real = getattr(JobRecord, failing)

    def full(record: JobRecord, *args: Any, **given: Any) -> None:
        nonlocal calls
        calls += 1
        if calls >= 20:
            raise storage_error(job.output, "No space left on device")
        real(record, *args, **given)

    async def think(request: RequestLine) -> None:
        await asyncio.sleep(0.001)

    monkeypatch.setattr(JobRecord, failing, full)
    with pytest.raises(StorageError, match="same command"):
        await job.run(ScriptedAnswerer(think), commit_interval_s=0.0)
    monkeypatch.undo()
    done = line_numbers(job.results())
    assert 0 < len(done) < 100
    rest = ScriptedAnswerer()
    assert await job.run(rest)
    assert sorted(done + rest.started) == list(range(1, 101))


@pytest.mark.asyncio
async def test_a_complete_job_is_told_so(job: Job) -> None:
    write_requests(job.input, ["a"])
    assert await job.run(ScriptedAnswerer())
    with open_record(job.output, {}, lambda: "0" * 16, lambda: 0.0) as record:
        assert record.is_complete


@pytest.mark.asyncio
async def test_commits_come_while_it_runs(job: Job) -> None:
    """What a power cut would cost is bounded by time, not by the job's length."""
    write_requests(job.input, [f"r{n}" for n in range(1, 11)])
    committed = asyncio.Event()

    def begun(runner: JobRunner, record: JobRecord) -> None:
        real = record.commit

        def commit(is_complete: bool = False) -> None:
            real(is_complete)
            if record.counts.num_done >= 5:
                committed.set()

        record.commit = commit

    async def think(request: RequestLine) -> None:
        if request.number > 5:
            await committed.wait()

    assert await job.run(ScriptedAnswerer(think), begun=begun, commit_interval_s=0.01)


@pytest.mark.asyncio
async def test_a_request_takes_its_room_in_the_window(job: Job) -> None:
    write_requests(job.input, [f"r{n}" for n in range(1, 31)])

    answerer = ScriptedAnswerer(slowly, load=Load(3, 1))
    assert await job.run(answerer, max_sequences=8)
    assert answerer.max_running == 2


@pytest.mark.asyncio
async def test_a_refused_request_takes_no_room(job: Job) -> None:
    write_requests(job.input, [f"r{n}" for n in range(1, 31)])

    async def think(request: RequestLine) -> None:
        raise RequestError("no")

    assert await job.run(ScriptedAnswerer(think), max_sequences=1)
    assert len(job.results()) == 30
