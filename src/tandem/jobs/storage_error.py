"""The disk does not take what a job writes."""

from pathlib import Path

from tandem.spec.errors import TandemError


class StorageError(TandemError):
    """The job stops; what it finished is kept."""


def storage_error(path: Path, reason: str) -> StorageError:
    """`path` cannot be written."""
    return StorageError(
        f"cannot write {path}: {reason}; make room and run the same command, which goes on where "
        "this run stopped"
    )
