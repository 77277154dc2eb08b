"""Runs a job: reads requests, keeps the engine full, writes results as they come."""

import asyncio
import logging
from collections.abc import Callable, Iterator

from tandem.api.errors import ApiError, api_error
from tandem.engine.clients.loop_turn import loop_turn
from tandem.jobs.answerer import Answerer, Prepared
from tandem.jobs.lines import Line
from tandem.jobs.record import JobRecord
from tandem.jobs.request_line import (
    LineError,
    RequestLine,
    read_custom_id,
    read_fields,
    read_request,
)
from tandem.jobs.result_line import ResultLine
from tandem.jobs.storage_error import NoRoomError, StorageError
from tandem.jobs.window import Window
from tandem.spec.errors import EngineDeadError, TandemError

_LOG = logging.getLogger(__name__)
_MAX_DEATHS = 3
_DEADLY = ApiError(
    500,
    f"the engine stopped {_MAX_DEATHS} times while it ran this request; send it to another engine, "
    "or with fewer tokens",
    kind="server_error",
    code="engine_dead",
)


class JobRunner:
    """One run of a job, on one event loop.

    Args:
        lines: of the input, from the record's mark on.
        report: called after each interval, and in the end.
        commit_interval_s: a power cut costs the work of so long.
    """

    def __init__(
        self,
        record: JobRecord,
        lines: Iterator[Line],
        answerer: Answerer,
        window: Window,
        report: Callable[[], None],
        commit_interval_s: float = 1.0,
    ) -> None:
        self._record = record
        self._results = record.results
        self._lines = lines
        self._answerer = answerer
        self._window = window
        self._report = report
        self._commit_interval_s = commit_interval_s
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: dict[int, RequestLine] = {}
        self._fault: TandemError | None = None
        self._is_at_end = False
        self._ended = asyncio.Event()

    def drain(self) -> int:
        """Begin no further line; what runs is finished: so many lines."""
        self._window.close()
        return len(self._tasks)

    def stop(self) -> None:
        """Begin no further line, and give up what runs."""
        self._window.close()
        for task in self._tasks:
            task.cancel()

    async def run(self) -> bool:
        """Run until the input's end, or until told to end; True if every line has its result.

        Raises:
            EngineDeadError, StorageError: the job cannot go on now; what was finished is kept.
            ConfigError: the input was changed.
        """
        committing = asyncio.create_task(self._commit_regularly())
        try:
            await self._read()
            await self._idle()
        except TandemError as error:
            self._fail(error)
        finally:
            self.stop()
            self._ended.set()
            await asyncio.gather(committing, *self._tasks, return_exceptions=True)
        is_done = self._is_at_end and not self._record.has_unfinished
        # After a fault of the disk there is nothing to commit: the output is read back next time.
        if not isinstance(self._fault, StorageError):
            self._record.commit(is_complete=is_done)
        if self._fault is not None:
            raise self._fault
        self._report()
        return is_done

    async def _read(self) -> None:
        for line in self._lines:
            if self._window.is_closed:
                return
            await self._take(line)
            # A turn for results and signals, also if no line so far needed the engine.
            await loop_turn()
        self._is_at_end = True

    async def _take(self, line: Line) -> None:
        number = line.start.number
        is_new = self._record.begin(line)
        try:
            # Also if the line has its result: its custom id must be known to those that follow.
            request = self._request(number, line.data)
        except LineError as error:
            if is_new:
                self._record.finish(self._results.fault(number, error))
            else:
                self._record.skip(number)
            return
        if not is_new:
            self._record.skip(number)
            return
        try:
            prepared = self._answerer.prepare(request)
        except EngineDeadError:
            raise
        except Exception as error:  # noqa: BLE001 (one line's fault is not the others')
            self._record.finish(self._refusal(request, error))
            return
        if self._record.num_deaths(number):
            # Alone, so that another death is no other line's fault.
            await self._idle()
            await self._begin(request, prepared)
            await self._idle()
        else:
            await self._begin(request, prepared)

    async def _begin(self, request: RequestLine, prepared: Prepared) -> None:
        if await self._window.enter(prepared.load):
            task = asyncio.create_task(self._answer(request, prepared))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _idle(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _request(self, number: int, data: bytes | None) -> RequestLine:
        if data is None:
            raise LineError("line_too_long", "the line is too long; raise --max-line-size")
        fields = read_fields(data)
        custom_id = read_custom_id(fields)
        first = self._record.claim(custom_id, number)
        if first != number:
            raise LineError(
                "duplicate_custom_id",
                f"line {first} has the same custom_id; give each line its own",
                custom_id,
            )
        return read_request(number, custom_id, fields)

    async def _answer(self, request: RequestLine, prepared: Prepared) -> None:
        self._running[request.number] = request
        try:
            self._finish(request, await self._result(request, prepared))
        except TandemError as error:
            self._fail(error)
        finally:
            del self._running[request.number]
            self._window.leave(prepared.load)

    def _finish(self, request: RequestLine, result: ResultLine) -> None:
        """Write a result; an error in its place if there is room for no more."""
        try:
            self._record.finish(result)
        except NoRoomError as error:
            full = ApiError(507, error.message, kind="server_error", code="storage_full")
            self._record.finish(self._refusal(request, full))

    async def _result(self, request: RequestLine, prepared: Prepared) -> ResultLine:
        try:
            body = await prepared.run()
            return self._results.answer(request.number, request.custom_id, body)
        except EngineDeadError:
            raise
        except Exception as error:  # noqa: BLE001 (one line's fault is not the others')
            return self._refusal(request, error)

    def _refusal(self, request: RequestLine, error: Exception) -> ResultLine:
        if not isinstance(error, TandemError | ApiError):
            _LOG.error("line %d failed", request.number, exc_info=error)
        return self._results.refusal(request.number, request.custom_id, api_error(error))

    async def _commit_regularly(self) -> None:
        num_committed = self._record.counts.num_done
        while not await self._ends_within(self._commit_interval_s):
            num_done = self._record.counts.num_done
            if num_done > num_committed:
                try:
                    self._record.commit()
                except StorageError as error:
                    self._fail(error)
                    return
                num_committed = num_done
            self._report()

    async def _ends_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._ended.wait()
        except TimeoutError:
            return False

    def _fail(self, error: TandemError) -> None:
        is_first, self._fault = self._fault is None, self._fault or error
        self.stop()
        if is_first and isinstance(error, EngineDeadError):
            self._blame()

    def _blame(self) -> None:
        """The engine died: note what ran, and give up what ran each time."""
        try:
            for request in self._running.values():
                self._record.note_death(request.number)
                if self._record.num_deaths(request.number) >= _MAX_DEATHS:
                    self._record.finish(self._refusal(request, _DEADLY))
        except StorageError as error:
            self._fault = error
