"""Files that users name: read with a limit, and written at once or not at all."""

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from tandem.spec.errors import ConfigError


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

    Raises:
        OSError: it cannot be written.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
