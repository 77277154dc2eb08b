"""How many cores this process may really use, and how its OpenMP threads wait for work."""

import math
import os
from collections.abc import Iterator, MutableMapping
from pathlib import Path

_SPIN_COUNT = "10000"
_ROOT = Path("/")


def wait_calmly(environment: MutableMapping[str, str]) -> None:
    """Let OpenMP threads spin for microseconds, not milliseconds, before they sleep.

    GNU OpenMP, torch's, spins for milliseconds by default. Where another process wants one of the
    cores, every parallel region then waits for a time slice: the demo took ten times as long on two
    cores of which one was busy. Works only before torch is imported; what the user has set stays.
    """
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", _SPIN_COUNT)


def usable_cores(root: Path = _ROOT) -> int:
    """Cores that this process may use: its affinity mask, bounded by the control group's quota.

    A quota counts as whole cores, rounded down, but as one at least: a thread more than it grants
    uses up, spinning, the time of those that work.

    Args:
        root: where `proc` and `sys` lie; `/` but in tests.
    """
    cores = len(os.sched_getaffinity(0))
    quota = min(_quotas(root), default=math.inf)
    return max(1, min(cores, math.floor(quota))) if quota < math.inf else cores


def _quotas(root: Path) -> Iterator[float]:
    """Cores' worth of time that the process's group and those above it grant, where bounded."""
    for line in _words_of(root / "proc/self/cgroup", "\n"):
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
        parts = [] if ".." in path.split("/") else [part for part in path.split("/") if part]
        for depth in range(len(parts), -1, -1):
            group = mount.joinpath(*parts[:depth])
            # version 2: "max 100000" or "150000 100000"; version 1: a file each, quota -1 for none
            words = _words_of(group / "cpu.max") or [
                *_words_of(group / "cpu.cfs_quota_us"),
                *_words_of(group / "cpu.cfs_period_us"),
            ]
            if len(words) == 2 and words[0].isdigit() and int(words[1]):
                yield int(words[0]) / int(words[1])


def _words_of(path: Path, separator: str | None = None) -> list[str]:
    try:
        return [word for word in path.read_text().split(separator) if word]
    except OSError:  # absent: the kernel or the hierarchy is another one
        return []
