"""The disk does not take what a job writes."""

import errno
from pathlib import Path

from tandem.spec.errors import TandemError

# full, beyond a quota, beyond the largest file that the process may write
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class StorageError(TandemError):
    """The job stops; what it finished is kept."""


class NoRoomError(StorageError):
    """There is no room for what was to be written; something shorter may fit."""


def storage_error(path: Path, reason: str) -> StorageError:
    """`path` cannot be written."""
    return StorageError(_message(path, reason))


def write_error(path: Path, error: OSError) -> StorageError:
    """`path` cannot be written, as the system says."""
    kind = NoRoomError if error.errno in _NO_ROOM else StorageError
    return kind(_message(path, str(error.strerror)))


def _message(path: Path, reason: str) -> str:
    return (
        f"cannot write {path}: {reason}; make room and run the same command, which goes on where "
        "this run stopped"
    )
