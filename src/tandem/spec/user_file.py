"""Files that users name: read with a limit, and written at once or not at all."""

import json
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from tandem.spec.errors import ConfigError

_MODE = 0o666  # less what the user's mask takes


def read_text(path: Path, max_bytes: int, kind: str) -> str:
    """A file's text.

    Args:
        kind: what it should be, for the error.

    Raises:
        ConfigError: the reason alone; the caller names file, flag and remedy.
    """
    try:
        if path.stat().st_size > max_bytes:
            raise ConfigError(f"it is larger than any {kind}")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(error.strerror or "unreadable") from None
    except ValueError:
        raise ConfigError("it is no text") from None


def parse_object(text: str) -> dict[str, Any]:
    """A JSON object's fields.

    Raises:
        ConfigError: the reason alone.
    """
    try:
        values: Any = json.loads(text)
    except RecursionError:
        raise ConfigError("it is nested too deeply") from None
    except ValueError as error:
        raise ConfigError(f"not JSON ({error})") from None
    if not isinstance(values, dict):
        raise ConfigError("it is no JSON object")
    return cast("dict[str, Any]", values)


def replace_text(path: Path, text: str) -> None:
    """Write a file; if that fails, the one before is left as it was.

    The new one has its permissions. Where a link leads is written, and not the link; a pipe or a
    device, which nothing can take the place of, is written as it stands.

    Raises:
        OSError: it cannot be written.
    """
    if path.exists() and not path.is_file():
        path.write_text(text, "utf-8")
        return
    place = Path(os.path.realpath(path))
    beside = place.with_name(f".{place.name}-{secrets.token_hex(4)}")
    # not by `tempfile`, whose files are their owner's alone
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            if place.exists():
                os.fchmod(descriptor, stat.S_IMODE(place.stat().st_mode))
            file.write(text)
        os.replace(beside, place)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
