"""What the operating system says about this process's memory; no sums of ours (contract 12)."""

from dataclasses import dataclass
from pathlib import Path

from tandem.memory.cgroup import CgroupMemory, read_cgroups
from tandem.spec.errors import ConfigError


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Host memory at one moment, in bytes.

    Attributes:
        rss_bytes, peak_rss_bytes: resident set of this process now and at its highest.
        total_bytes, free_bytes: the machine's memory, and what it could still give out
            (`MemAvailable`).
        available_bytes: what this process can still get: the smaller of `free_bytes` and the
            room under every control group's limit.
        cgroup_limit_bytes: the tightest limit, None if unlimited.
        cgroup_current_bytes, cgroup_peak_bytes: use of the group with that limit, else of the
            innermost; None if not known.
    """

    rss_bytes: int
    peak_rss_bytes: int
    total_bytes: int
    free_bytes: int
    available_bytes: int
    cgroup_limit_bytes: int | None
    cgroup_current_bytes: int | None
    cgroup_peak_bytes: int | None

    @property
    def capacity_bytes(self) -> int:
        """The machine's memory or the control group's limit, whichever is smaller."""
        limit = self.cgroup_limit_bytes
        return self.total_bytes if limit is None else min(self.total_bytes, limit)


def read_host_memory(root: Path = Path("/")) -> HostMemory:
    """Ask the kernel.

    Args:
        root: where `proc` and `sys` lie; `/` but in tests.

    Raises:
        ConfigError: there is no `/proc` as Linux has it.
    """
    status = _fields(root / "proc/self/status")
    meminfo = _fields(root / "proc/meminfo")
    groups = read_cgroups(root)
    group = _tightest(groups)
    free = _field(meminfo, "MemAvailable")
    rooms = [room for each in groups if (room := each.available_bytes) is not None]
    return HostMemory(
        rss_bytes=_field(status, "VmRSS"),
        peak_rss_bytes=_field(status, "VmHWM"),
        total_bytes=_field(meminfo, "MemTotal"),
        free_bytes=free,
        available_bytes=min([free, *rooms]),
        cgroup_limit_bytes=group.limit_bytes if group else None,
        cgroup_current_bytes=group.current_bytes if group else None,
        cgroup_peak_bytes=group.peak_bytes if group else None,
    )


def _tightest(groups: list[CgroupMemory]) -> CgroupMemory | None:
    limited = [group for group in groups if group.limit_bytes is not None]
    if limited:
        return min(limited, key=lambda group: group.limit_bytes or 0)
    return groups[0] if groups else None


def _fields(path: Path) -> dict[str, int]:
    """`Name:   123 kB` lines as bytes."""
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; Tandem needs Linux") from None
    fields: dict[str, int] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if len(words) == 2 and words[1] == "kB":
            fields[name] = int(words[0]) * 1024
    return fields


def _field(fields: dict[str, int], name: str) -> int:
    if name not in fields:
        raise ConfigError(f"/proc does not tell {name}; a Linux kernel of 3.14 or later is needed")
    return fields[name]
