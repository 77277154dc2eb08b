"""Memory limit and use of the control groups that this process is in (Linux v2 and v1)."""

from dataclasses import dataclass
from pathlib import Path

# v1 writes "no limit" as the largest multiple of the page size in a signed 64-bit integer.
_UNLIMITED_BYTES = 1 << 60


@dataclass(frozen=True, slots=True)
class CgroupMemory:
    """Memory of one control group.

    Attributes:
        limit_bytes: beyond which processes are killed, or, if that is less, throttled until they
            hardly run (`memory.high`; systemd's MemoryHigh); None if unlimited.
        reclaimable_bytes: part of `current_bytes` that the kernel gives back on demand (inactive
            file pages: a weight file that has been read stays there).
        peak_bytes: None if the kernel does not tell.
    """

    limit_bytes: int | None
    current_bytes: int
    reclaimable_bytes: int
    peak_bytes: int | None

    @property
    def available_bytes(self) -> int | None:
        """What may still be allocated under the limit; None if unlimited."""
        if self.limit_bytes is None:
            return None
        return max(0, self.limit_bytes - self.current_bytes + self.reclaimable_bytes)


@dataclass(frozen=True, slots=True)
class _Files:
    """Names of the files of one cgroup version, and where its hierarchy is mounted."""

    mount: str
    limits: tuple[str, ...]
    current: str
    peak: str
    inactive: str


_V2 = _Files(
    "",
    ("memory.max", "memory.high"),
    "memory.current",
    "memory.peak",
    "inactive_file",
)
_V1 = _Files(
    "memory",
    ("memory.limit_in_bytes",),
    "memory.usage_in_bytes",
    "memory.max_usage_in_bytes",
    "total_inactive_file",
)


def read_cgroups(root: Path) -> list[CgroupMemory]:
    """The process's own control group and its ancestors, innermost first; limits of all apply.

    Args:
        root: where `proc` and `sys` lie; `/` but in tests.

    Returns: groups that account memory; empty if there is none.
    """
    files, path = _membership(root)
    groups = (_read_group(folder, files) for folder in _folders(root, files, path))
    return [group for group in groups if group is not None]


def _folders(root: Path, files: _Files, path: str) -> list[Path]:
    """Of a group and its ancestors, innermost first; those that can be seen here."""
    mount = root / "sys/fs/cgroup" / files.mount
    # Inside a container the path may be that of the host, not visible here; the mount point is
    # then the container's own group and closes the list anyway.
    parts = [] if ".." in path.split("/") else [part for part in path.split("/") if part]
    return [mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]


def innermost_group(root: Path) -> tuple[Path, str] | None:
    """Folder of the innermost group seen here that accounts this process's memory, and the name of
    the file that tells its peak; None if there is none. `root` as in `read_cgroups`.
    """
    files, path = _membership(root)
    for folder in _folders(root, files, path):
        if _number(folder / files.current) is not None:
            return folder, files.peak
    return None


def _membership(root: Path) -> tuple[_Files, str]:
    """Which hierarchy accounts memory, and the process's path in it."""
    v2_path = "/"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return _V1, path
        if not controllers:
            v2_path = path
    return _V2, v2_path


def _read_group(folder: Path, files: _Files) -> CgroupMemory | None:
    current = _number(folder / files.current)
    if current is None:
        return None
    limits = (_number(folder / limit) for limit in files.limits)
    bounds = [limit for limit in limits if limit is not None and limit < _UNLIMITED_BYTES]
    return CgroupMemory(
        limit_bytes=min(bounds, default=None),
        current_bytes=current,
        reclaimable_bytes=_stat(folder / "memory.stat", files.inactive),
        peak_bytes=_number(folder / files.peak),
    )


def _stat(path: Path, name: str) -> int:
    for line in _text(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        # Absent or unreadable: the kernel is older or the hierarchy is another one.
        return ""
