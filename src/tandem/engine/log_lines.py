"""What is logged while a command runs, as lines of its own on standard error."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class _Line(logging.Formatter):
    """As a command's errors and notes look: `tandem: warning: ...`."""

    def format(self, record: logging.LogRecord) -> str:
        return f"tandem: {record.levelname.lower()}: {super().format(record)}"


@contextmanager
def log_lines() -> Iterator[None]:
    """Within, warnings and errors of this package go to standard error, where a program that uses
    it as a library would decide about them itself.
    """
    logger, handler = logging.getLogger("tandem"), logging.StreamHandler()
    handler.setFormatter(_Line())
    handler.setLevel(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
