"""What a job remembers beside its output, so that it can be resumed.

The output is the truth about which lines are done; the journal follows it. Each transaction
records how far the output is accounted for, and is committed only after those bytes are on the
disk. What the output holds beyond is read back when the job is resumed.
"""

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field
from pathlib import Path

from tandem.jobs.counts import Counts
from tandem.jobs.lines import Place
from tandem.jobs.storage_error import StorageError, storage_error
from tandem.spec.errors import ConfigError

_FORMAT = 2
_CACHE_KIB = 8192
_PRIMARY_CODE = 0xFF  # of an extended code of SQLite's
_DISK_FAULTS = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_SIDECARS = ("", "-wal", "-shm", "-journal")

_SCHEMA = """
CREATE TABLE job (format INTEGER, job_id TEXT, identity TEXT);
CREATE TABLE progress (
    mark_line INTEGER, mark_offset INTEGER, output_bytes INTEGER, is_complete INTEGER,
    num_ok INTEGER, num_failed INTEGER, num_prompt_tokens INTEGER, num_output_tokens INTEGER,
    elapsed_s REAL
);
CREATE TABLE finished (line INTEGER PRIMARY KEY);
CREATE TABLE claims (custom_id BLOB PRIMARY KEY, line INTEGER) WITHOUT ROWID;
CREATE TABLE deaths (line INTEGER PRIMARY KEY, num_deaths INTEGER);
"""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is.

    Attributes:
        mark: every line before it is done.
        output_bytes: of the output, accounted for in `counts` and in the lines done.
    """

    mark: Place = field(default_factory=Place)
    output_bytes: int = 0
    counts: Counts = field(default_factory=Counts)
    is_complete: bool = False


class Journal:
    """One job's journal. Changes are kept by `commit` only, and a fault makes it useless: what is
    written then is what was committed.

    Attributes:
        job_id: names the job in its output.
        identity: what must be the same whenever the job is resumed, by name.

    Raises, by everything that writes:
        StorageError: the disk is full, or fails.
    """

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self._path = path
        self._database = database
        self._fault: StorageError | None = None
        ((form, self.job_id, identity),) = database.execute("SELECT * FROM job")
        if form != _FORMAT:
            raise sqlite3.DatabaseError(f"format {form} instead of {_FORMAT}")
        self.identity: dict[str, str] = json.loads(identity)
        (row,) = database.execute("SELECT * FROM progress")
        mark_line, mark_offset, output_bytes, is_complete, *counts = row
        self._progress = Progress(
            Place(mark_line, mark_offset), output_bytes, Counts(*counts), bool(is_complete)
        )
        (self._last_finished,) = database.execute("SELECT max(line) FROM finished").fetchone()
        self._deaths = dict(database.execute("SELECT line, num_deaths FROM deaths"))
        database.execute("BEGIN IMMEDIATE")

    @staticmethod
    def create(path: Path, job_id: str, identity: Mapping[str, str]) -> "Journal":
        """The journal of a job that begins; nothing may be at `path`.

        Raises:
            StorageError: it cannot be written.
        """
        zeros = [*astuple(Place()), 0, False, *astuple(Counts())]
        try:
            with _connected(path) as database:
                database.execute("BEGIN IMMEDIATE")
                for statement in _SCHEMA.split(";"):
                    database.execute(statement)
                facts = (_FORMAT, job_id, json.dumps(identity))
                database.execute("INSERT INTO job VALUES (?, ?, ?)", facts)
                values = ",".join("?" * len(zeros))
                database.execute(f"INSERT INTO progress VALUES ({values})", zeros)
                database.execute("COMMIT")
                return Journal(path, database)
        except sqlite3.OperationalError as error:
            raise storage_error(path, str(error)) from error

    @staticmethod
    def open(path: Path) -> "Journal | None":
        """The journal at `path`; None if there is none, or one that was never begun.

        Raises:
            ConfigError: it is damaged, or no journal.
            StorageError: the disk is full, or fails.
        """
        if not path.exists():
            return None
        try:
            with _connected(path) as database:
                if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'job'").fetchone():
                    return Journal(path, database)
                database.close()
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            if getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE in _DISK_FAULTS:
                raise storage_error(path, str(error)) from error
            raise ConfigError(
                f"the journal {path} cannot be read ({error}); restore it, or begin anew with "
                "--restart"
            ) from None
        return None

    @staticmethod
    def remove(path: Path) -> None:
        """Delete the journal at `path`, if there is one."""
        for sidecar in _SIDECARS:
            Path(f"{path}{sidecar}").unlink(missing_ok=True)

    @property
    def progress(self) -> Progress:
        """As of the last commit."""
        return self._progress

    def claim(self, custom_id: bytes, line: int) -> int:
        """The first line that has this custom id, which is `line` if nobody claimed it before."""
        claimed = self._write("INSERT OR IGNORE INTO claims VALUES (?, ?)", custom_id, line)
        if claimed.rowcount:
            return line
        asked = "SELECT line FROM claims WHERE custom_id = ?"
        return self._database.execute(asked, (custom_id,)).fetchone()[0]

    def finish(self, line: int) -> None:
        """Note that a line is done."""
        self._write("INSERT INTO finished VALUES (?)", line)

    def was_finished(self, line: int) -> bool:
        """True if an earlier run finished a line at or behind the mark."""
        if self._last_finished is None or line > self._last_finished:
            return False
        asked = "SELECT 1 FROM finished WHERE line = ?"
        return self._database.execute(asked, (line,)).fetchone() is not None

    def adopt(self, line: int) -> None:
        """Note that a line was done by an earlier run."""
        self.finish(line)
        self._last_finished = max(line, self._last_finished or 0)

    def num_deaths(self, line: int) -> int:
        """How often the engine died while a line ran."""
        return self._deaths.get(line, 0)

    def note_death(self, line: int) -> None:
        """The engine died while a line ran."""
        self._deaths[line] = self.num_deaths(line) + 1
        self._write("INSERT OR REPLACE INTO deaths VALUES (?, ?)", line, self._deaths[line])

    def commit(self, progress: Progress) -> None:
        """Keep everything up to here; the output must be on the disk up to `output_bytes`."""
        self._write("DELETE FROM finished WHERE line < ?", progress.mark.number)
        self._write("DELETE FROM deaths WHERE line < ?", progress.mark.number)
        self._write(
            "UPDATE progress SET mark_line = ?, mark_offset = ?, output_bytes = ?, "
            "is_complete = ?, num_ok = ?, num_failed = ?, num_prompt_tokens = ?, "
            "num_output_tokens = ?, elapsed_s = ?",
            *astuple(progress.mark),
            progress.output_bytes,
            progress.is_complete,
            *astuple(progress.counts),
        )
        self._write("COMMIT")
        self._progress = progress
        self._write("BEGIN IMMEDIATE")

    def shrink(self) -> None:
        """Forget what a complete job no longer needs, if there is room to do so."""
        with contextlib.suppress(sqlite3.OperationalError):
            self._database.execute("DELETE FROM claims")
            self._database.execute("COMMIT")
            self._database.execute("VACUUM")

    def close(self) -> None:
        """Close it, without what was not committed."""
        self._database.close()

    def _write(self, statement: str, *values: object) -> sqlite3.Cursor:
        if self._fault is not None:
            raise self._fault
        try:
            return self._database.execute(statement, values)
        except sqlite3.OperationalError as error:
            # The transaction may be gone: nothing after it may be kept without what was in it.
            self._fault = storage_error(self._path, str(error))
            raise self._fault from error


@contextlib.contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that stays open unless something is raised: it would keep its lock."""
    database = sqlite3.connect(path, isolation_level=None)
    try:
        # Exclusive: no shared-memory file, which a full disk would turn into a bus error.
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        yield database
    except BaseException:
        database.close()
        raise
