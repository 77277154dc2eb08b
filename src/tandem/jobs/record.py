"""What is done of a job and what is not: its output and journal, kept in step."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from tandem.jobs.counts import Counts
from tandem.jobs.journal import Journal, Progress
from tandem.jobs.lines import Line, Place
from tandem.jobs.output_file import OutputFile
from tandem.jobs.result_line import ResultLine, ResultWriter
from tandem.spec.errors import ConfigError

_CUSTOM_ID_BYTES = 16


class JobRecord:
    """Owns output and journal. Every line goes through `begin`, then `finish` or `skip`.

    A result is in the output, or it is not: what a crash tore is cut off when the job is resumed.
    The journal is committed behind it, and the output's tail is read back. So no line that has its
    result is done again, and none without one is passed over.

    Args:
        clock: seconds, for the time that the job runs.
        is_new: the job begins.
    """

    def __init__(
        self,
        output: OutputFile,
        journal: Journal,
        clock: Callable[[], float],
        *,
        is_new: bool = False,
    ) -> None:
        self._is_new = is_new
        self._output = output
        self._journal = journal
        self._clock = clock
        self._started_s = clock()
        self.results = ResultWriter(journal.job_id)
        self._earlier_s = journal.progress.counts.elapsed_s
        self._counts = journal.progress.counts
        self._reached = journal.progress.mark
        # In order of line numbers, since lines begin in that order.
        self._unfinished: dict[int, Place] = {}
        if not journal.progress.is_complete:
            self._read_back()

    @property
    def is_complete(self) -> bool:
        """Every line has its result, and the journal says so."""
        return self._journal.progress.is_complete

    @property
    def mark(self) -> Place:
        """Where reading the input begins: every line before it is done."""
        first = next(iter(self._unfinished.values()), None)
        return first or self._reached

    @property
    def has_unfinished(self) -> bool:
        """True while a line that was begun has no result."""
        return bool(self._unfinished)

    @property
    def counts(self) -> Counts:
        """Lines done so far, and their tokens."""
        if self.is_complete:
            return self._journal.progress.counts
        elapsed_s = self._earlier_s + self._clock() - self._started_s
        return replace(self._counts, elapsed_s=elapsed_s)

    def begin(self, line: Line) -> bool:
        """Take a line up; lines come in order. False if it has its result already."""
        number = line.start.number
        self._unfinished[number] = line.start
        self._reached = line.end
        return not self._journal.was_finished(number)

    def claim(self, custom_id: str, number: int) -> int:
        """The first line with this custom id; `number` if it is the first."""
        text = custom_id.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(text, digest_size=_CUSTOM_ID_BYTES).digest()
        return self._journal.claim(digest, number)

    def is_finished(self, number: int) -> bool:
        """Whether a line has its result."""
        return self._journal.was_finished(number)

    def num_deaths(self, number: int) -> int:
        """How often the engine died while a line ran, over all runs of the job."""
        return self._journal.num_deaths(number)

    def note_death(self, number: int) -> None:
        """The engine died while a line ran.

        Raises:
            StorageError: the disk is full, or fails.
        """
        self._journal.note_death(number)

    def skip(self, number: int) -> None:
        """Leave a line that has its result."""
        del self._unfinished[number]

    def finish(self, result: ResultLine) -> None:
        """Write a line's result.

        Raises:
            NoRoomError: the result does not fit on the disk. StorageError: the disk fails, or is
                too full for the journal. The line stays unfinished.
        """
        self._output.append(result.data)
        self._journal.finish(result.outcome.number)
        self._counts = self._counts.plus(result.outcome)
        del self._unfinished[result.outcome.number]

    def commit(self, is_complete: bool = False) -> None:
        """Make everything so far durable.

        Raises:
            StorageError: the disk is full, or fails; nothing is lost.
        """
        self._output.sync()
        progress = Progress(self.mark, self._output.size_bytes, self.counts, is_complete)
        self._journal.commit(progress)
        if is_complete:
            self._journal.shrink()

    def discard(self) -> None:
        """Leave no files behind if this run made them and there is no result; to be closed then."""
        if self._is_new and not self._output.size_bytes:
            Journal.remove(journal_path(self._output.path))
            self._output.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Give up the output; what was not committed is read back next time."""
        self._journal.close()
        self._output.close()

    def __enter__(self) -> "JobRecord":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _read_back(self) -> None:
        """Take in results behind the last commit, and cut off what is none."""
        known_bytes = self._journal.progress.output_bytes
        for line in self._output.lines_from(known_bytes):
            outcome = None if line.data is None else self.results.read(line.data)
            if outcome is None or not line.is_whole or not self._is_open(outcome.number):
                break
            self._journal.adopt(outcome.number)
            self._counts = self._counts.plus(outcome)
            known_bytes = line.end.offset
        self._output.cut(known_bytes)

    def _is_open(self, number: int) -> bool:
        return number >= self._reached.number and not self._journal.was_finished(number)


def open_record(
    path: Path,
    identity: dict[str, str],
    new_job_id: Callable[[], str],
    clock: Callable[[], float],
    restart: bool = False,
) -> JobRecord:
    """Begin a job that writes to `path`, or resume it; the journal lies beside the output.

    Args:
        identity: what answers depend on, by name.
        restart: drop what there is, and begin.

    Raises:
        ConfigError: the output belongs to another job or to none, was changed, or is being written.
        StorageError: the journal cannot be written.
    """
    output = OutputFile(path)
    is_new = restart or not journal_path(path).exists()
    try:
        journal = _open_journal(output, identity, new_job_id, restart)
        try:
            return JobRecord(output, journal, clock, is_new=is_new)
        except BaseException:
            journal.close()
            raise
    except BaseException:
        output.close()
        raise


def journal_path(output: Path) -> Path:
    """Where the journal of an output lies."""
    return output.with_name(output.name + ".journal")


def _open_journal(
    output: OutputFile, identity: dict[str, str], new_job_id: Callable[[], str], restart: bool
) -> Journal:
    path = journal_path(output.path)
    if restart:
        Journal.remove(path)
        output.cut(0)
    journal = Journal.open(path)
    if journal is None:
        return _begin_journal(output, path, identity, new_job_id())
    try:
        _check(journal, output, identity)
    except ConfigError:
        journal.close()
        raise
    return journal


def _begin_journal(
    output: OutputFile, path: Path, identity: dict[str, str], job_id: str
) -> Journal:
    if output.size_bytes:
        raise ConfigError(
            f"{output.path} exists and has no journal ({path.name}), so it cannot be resumed; name "
            "another --output-file, or replace it with --restart",
            param="output_file",
        )
    Journal.remove(path)
    return Journal.create(path, job_id, identity)


def _check(journal: Journal, output: OutputFile, identity: dict[str, str]) -> None:
    changed = [
        name
        for name in sorted({*identity, *journal.identity})
        if identity.get(name) != journal.identity.get(name)
    ]
    if changed:
        raise ConfigError(
            f"{output.path} was begun with another {', another '.join(changed)}; use what it was "
            "begun with, name another --output-file, or begin anew with --restart",
            param=changed[0],
        )
    known_bytes = journal.progress.output_bytes
    if output.size_bytes < known_bytes or not output.ends_line_at(known_bytes):
        raise ConfigError(
            f"{output.path} is not as the job left it ({known_bytes} bytes and more); put it back, "
            "or begin anew with --restart",
            param="output_file",
        )
