"""A folder for KV blocks that outlive the engine: ours alone, of one engine at a time."""

import fcntl
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tandem.spec.errors import ConfigError

FORMAT = 1
_ABOUT, _LOCK = "tandem-kv.json", "tandem-kv.lock"
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MOST_ABOUT_BYTES = 1 << 16

Layout = Mapping[str, str | int]
"""What a block depends on beside its tokens, by names for people: the model, types, the page."""


class PageFolder:
    """Opens files below a folder, by name, that nobody else can read or write.

    The folder says what its blocks are of, and refuses to be used for others: they would be thrown
    away, and may have taken hours to compute.

    Args:
        path: is made if it is missing.
        kept: name of the file with the blocks; while nothing is in it, they may be of anything.

    Raises:
        ConfigError: the folder cannot be used, belongs to others, is in use, or holds blocks of
            another model, layout or version.
    """

    def __init__(self, path: Path, layout: Layout, kept: str) -> None:
        self.path = path
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise self._unusable(error) from None
        self._lock = -1
        try:
            self._require_ours(os.fstat(self._folder))
            self._take_lock()
            self.is_new = not self._says(layout, kept)
        except OSError as error:
            self.close()
            raise self._unusable(error) from None
        except ConfigError:
            self.close()
            raise

    def open(self, name: str) -> int:
        """A descriptor of a file of ours, which is made if it is missing; the caller closes it.

        Raises:
            ConfigError: it is not ours, or no file.
        """
        descriptor = os.open(name, _FLAGS, 0o600, dir_fd=self._folder)
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid() or about.st_nlink != 1:
            os.close(descriptor)
            raise ConfigError(
                f"{self.path / name} is no file of this user's alone; remove it",
                param="kv_disk",
            )
        os.fchmod(descriptor, 0o600)
        return descriptor

    def describe(self, layout: Layout) -> None:
        """Say what the files are of; after they have been made, so that a folder without this is
        begun anew.
        """
        text = json.dumps({"format": FORMAT, **layout}, indent=2) + "\n"
        descriptor = self.open(_ABOUT + ".new")
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text.encode(), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(_ABOUT + ".new", _ABOUT, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        os.fsync(self._folder)
        self.is_new = False

    def close(self) -> None:
        """Let others use it."""
        for descriptor in (self._lock, self._folder):
            if descriptor >= 0:
                os.close(descriptor)
        self._lock = self._folder = -1

    def _require_ours(self, about: os.stat_result) -> None:
        if about.st_uid != os.geteuid() or about.st_mode & _OTHERS_MAY_WRITE:
            raise ConfigError(
                f"--kv-disk {self.path} can be written by other users, who could then say what "
                f"requests are answered from; use a folder of your own (chmod go-w)",
                param="kv_disk",
            )

    def _take_lock(self) -> None:
        self._lock = self.open(_LOCK)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"--kv-disk {self.path} is in use by another engine; give each its own folder",
                param="kv_disk",
            ) from None

    def _is_empty(self, name: str) -> bool:
        try:
            return os.stat(name, dir_fd=self._folder, follow_symlinks=False).st_size == 0
        except FileNotFoundError:
            return True

    def _says(self, layout: Layout, kept: str) -> bool:
        """False if the folder says nothing yet, or something else of blocks that there are not.

        Raises:
            ConfigError: it says something else.
        """
        descriptor = self.open(_ABOUT)
        try:
            text = os.pread(descriptor, _MOST_ABOUT_BYTES, 0)
        finally:
            os.close(descriptor)
        if not text:
            return False
        said = self._read(text)
        if said.get("format") != FORMAT:
            raise self._refused(f"was written by another version (format {said.get('format')!r})")
        for name, wanted in layout.items():
            if said.get(name) != wanted:
                if self._is_empty(kept):
                    return False
                raise self._refused(f"holds KV of another {name}: {said.get(name)}, not {wanted}")
        return True

    def _read(self, text: bytes) -> dict[str, Any]:
        try:
            said = json.loads(text)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            raise self._refused(f"cannot be told what it holds, since {_ABOUT} is damaged")
        return said

    def _refused(self, reason: str) -> ConfigError:
        return ConfigError(
            f"--kv-disk {self.path} {reason}; use another folder, or delete tandem-kv.* there",
            param="kv_disk",
        )

    def _unusable(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"--kv-disk {self.path} cannot be used ({error.strerror}); name a folder that can be "
            "written",
            param="kv_disk",
        )
