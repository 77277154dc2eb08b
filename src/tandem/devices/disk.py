"""Files opened past the page cache, or through it where that was asked for."""

import errno
import mmap
import os
from pathlib import Path

from tandem.plan.disk_slots import BLOCK_BYTES
from tandem.spec.config import HostIO
from tandem.spec.errors import ConfigError, ModelError


def open_for_reading(path: Path, mode: HostIO, name: Path | None = None) -> int:
    """A descriptor for reads of whole blocks; the caller closes it.

    Args:
        mode: `direct` goes past the page cache.
        name: what to call the file in messages, by default its path.

    Raises:
        ConfigError: the file system refuses direct reads.
        ModelError: there is no such file, or it cannot be read.
    """
    name = name or path
    flags = os.O_RDONLY | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | (os.O_DIRECT if mode == "direct" else 0))
    except OSError as error:
        raise _error(name, error, mode) from None
    try:
        _try(descriptor)
    except OSError as error:
        os.close(descriptor)
        raise _error(name, error, mode) from None
    return descriptor


def _try(descriptor: int) -> None:
    """Some file systems open a file for direct reads and refuse the first one."""
    with mmap.mmap(-1, BLOCK_BYTES) as block:  # at a page's beginning
        os.preadv(descriptor, [block], 0)


def _error(name: Path, error: OSError, mode: HostIO) -> ConfigError | ModelError:
    if mode == "direct" and error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
        return ConfigError(
            f"the file system of {name} refuses direct reads (O_DIRECT); use --disk-io cached to "
            "read through the page cache, or keep the weights on another file system",
            param="disk_io",
        )
    reason = error.strerror or "unreadable"
    return ModelError(f"cannot read weights from {name} ({reason}); restore the file")
