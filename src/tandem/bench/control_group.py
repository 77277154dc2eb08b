"""A control group for one process, so that the kernel tells the most that it held."""

import shlex
from pathlib import Path

from tandem.memory.cgroup import innermost_group
from tandem.spec.errors import ConfigError


class ControlGroup:
    """A group below this process's own, until it is removed.

    Args:
        root: where `proc` and `sys` lie; `/` but in tests.

    Raises:
        ConfigError: memory is not accounted here, or no group may be made.
    """

    def __init__(self, name: str, root: Path = Path("/")) -> None:
        found = innermost_group(root)
        if found is None:
            raise _refusal("this process is in no control group that accounts memory")
        parent, peak = found
        self._folder = parent / name
        self._peak = self._folder / peak
        try:
            self._folder.mkdir()
        except OSError as error:
            raise _refusal(f"{self._folder} cannot be made ({error.strerror})") from None
        if not self._peak.exists():
            self.remove()
            raise _refusal(f"groups below {parent} have no {peak}")

    def command(self, *command: str) -> list[str]:
        """What runs `command` in the group from its first page on."""
        processes = shlex.quote(str(self._folder / "cgroup.procs"))
        return ["sh", "-c", f'echo $$ > {processes} && exec "$0" "$@"', *command]

    def peak_bytes(self) -> int:
        """The most that it has held so far."""
        return int(self._peak.read_text())

    def remove(self) -> None:
        """Its processes have ended."""
        self._folder.rmdir()


def mapped_elsewhere_bytes(root: Path = Path("/")) -> int:
    """File pages that this process maps beyond what its control group is charged for: libraries
    that a process of another group has read before.
    """
    mapped = _number(root / "proc/self/status", "RssFile:") * 1024
    found = innermost_group(root)
    if found is None:
        return 0
    stat = found[0] / "memory.stat"
    charged = _number(stat, "mapped_file") or _number(stat, "file_mapped")  # of version 1, of 2
    return max(0, mapped - charged)


def _number(path: Path, name: str) -> int:
    lines = (line.split() for line in path.read_text().splitlines())
    return next((int(words[1]) for words in lines if words and words[0] == name), 0)


def _refusal(reason: str) -> ConfigError:
    return ConfigError(
        f"{reason}; leave --cgroup out, or run where control groups may be made below one's own"
    )
