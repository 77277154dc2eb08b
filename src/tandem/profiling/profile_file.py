"""A profile's file: written at once or not at all, read only if it is whole and of this machine."""

import hashlib
import json
import os
import shlex
from pathlib import Path
from typing import Any, cast

from tandem.profiling.plain_json import from_plain, to_plain
from tandem.profiling.profile import FORMAT, Machine, Profile
from tandem.spec.errors import ConfigError
from tandem.spec.user_file import replace_text

_MAX_BYTES = 16 << 20
_DIGEST_LENGTH = 16


def profile_path(cache: Path, machine: Machine) -> Path:
    """Where a machine's profile lies under a cache folder, which several machines may share."""
    words = json.dumps(to_plain(machine))
    digest = hashlib.sha256(words.encode()).hexdigest()[:_DIGEST_LENGTH]
    return cache / "profiles" / f"{digest}.json"


def to_json(profile: Profile) -> str:
    """One JSON object."""
    return json.dumps({"format": FORMAT, **to_plain(profile)}, allow_nan=False)


def write_profile(profile: Profile, path: Path) -> None:
    """Replace the file.

    Raises:
        ConfigError: it cannot be written; the one before is left as it was.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, to_json(profile) + "\n")
    except OSError as error:
        raise ConfigError(
            f"cannot write the profile {path}: {error.strerror}; choose another with --output",
            param="output",
        ) from None


def check_profile_writable(path: Path) -> None:
    """Find out before measuring that the profile can be written; may make its folder.

    Raises:
        ConfigError: it cannot.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror
    else:
        if not path.is_dir() and os.access(path.parent, os.W_OK):
            return
        reason = "it is a folder" if path.is_dir() else "permission denied"
    raise ConfigError(
        f"cannot write the profile {path}: {reason}; choose another with --output", param="output"
    )


def read_profile(path: Path, machine: Machine, kernels: str, *, named: bool = False) -> Profile:
    """The profile in a file.

    Args:
        machine: the one here.
        kernels: digest of the kernels and probes that are installed.
        named: the user has named the file, which is not where profiles are stored.

    Raises:
        ConfigError: there is none, it is corrupt, of another machine, of another format, or of
            other kernels or probes; says which.
    """
    try:
        return _checked(path, machine, kernels)
    except _RefusalError as refusal:
        command = f"tandem profile --output {shlex.quote(str(path))}" if named else "tandem profile"
        raise ConfigError(
            f"{refusal.reason}; run `{command}`{refusal.purpose}", param="profile"
        ) from None


class _RefusalError(Exception):
    """Why a file is none, and what its command would do."""

    def __init__(self, reason: str, purpose: str = " to measure anew") -> None:
        super().__init__(reason)
        self.reason, self.purpose = reason, purpose


def _checked(path: Path, machine: Machine, kernels: str) -> Profile:
    profile = _parse(path, _read(path))
    difference = machine.difference(profile.machine)
    if difference is not None:
        raise _refusal(path, f"is of another machine ({difference})")
    if profile.kernels != kernels:
        raise _refusal(
            path, "is old: it was measured with other kernels or probes than are installed now"
        )
    return profile


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise _refusal(path, "is corrupt: it is larger than any profile")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise _RefusalError(f"this machine has no profile ({path})", " first") from None
    except OSError as error:
        raise _refusal(path, f"cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise _refusal(path, "is corrupt: not text") from None


def _parse(path: Path, text: str) -> Profile:
    try:
        parsed: Any = json.loads(text)
        if not isinstance(parsed, dict):
            raise ValueError("not an object")
        values = cast("dict[str, Any]", parsed)
        number: Any = values.pop("format", None)
        if number is None:
            raise ValueError("format is missing")
        if type(number) is not int:
            raise ValueError(f"format must be a whole number, not {number!r:.40}")
        if number != FORMAT:
            raise _refusal(path, f"is old: of format {number}, not {FORMAT}")
        return from_plain(Profile, values)
    except (ValueError, RecursionError) as error:
        raise _refusal(path, f"is corrupt ({error})") from None


def _refusal(path: Path, reason: str) -> _RefusalError:
    return _RefusalError(f"the profile {path} {reason}")
