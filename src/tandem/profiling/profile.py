"""A machine's profile: what was measured, on what, with which code."""

from dataclasses import dataclass
from typing import cast

from tandem.profiling.measurements import (
    AcceleratorMeasurements,
    AtOnce,
    DiskMeasurements,
    HostMeasurements,
    Striping,
)

FORMAT = 7
"""Of the file: raised whenever what its numbers mean changes."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What a profile is of; another machine's is of no use here.

    Attributes:
        accelerator: as its driver names it; `none` without one.
        cores: processors that the process may run on.
        threads: of them, as many as it may really use.
        ranks: processes that share the machine: always 1 until there are ranks. It is in the key so
            that no profile of one process is taken for one of several then.
    """

    accelerator: str
    cpu: str
    cores: tuple[int, ...]
    threads: int
    ranks: int = 1

    def difference(self, other: "Machine") -> str | None:
        """The first thing in which `other` is not this one, in words; None: nothing."""
        for name in ("accelerator", "cpu", "cores", "threads", "ranks"):
            mine: object = getattr(self, name)
            others: object = getattr(other, name)
            if mine != others:
                return f"its {name}: {_words(others)}, here {_words(mine)}"
        return None


@dataclass(frozen=True, slots=True)
class Profile:
    """One run of `tandem profile`.

    Attributes:
        kernels: digest of the kernels that were measured, and of the probes that did.
        shapes: kinds and shapes measured, in words.
        measured_at: UTC, ISO 8601.
        striping: None: fewer than two disks were measured.
        at_once: attention and all else that shares the host's memory; empty: there is nothing else.
        skipped: what was not measured and why, one line each.
        hurried: probes that had one round instead of all, since the clock's budget ran short.

    Raises:
        ValueError: not as many shares as disks.
    """

    machine: Machine
    kernels: str
    shapes: tuple[str, ...]
    measured_at: str
    duration_s: float
    thorough: bool
    host: HostMeasurements
    accelerator: AcceleratorMeasurements | None
    disks: tuple[DiskMeasurements, ...]
    striping: Striping | None
    at_once: tuple[AtOnce, ...]
    skipped: tuple[str, ...]
    hurried: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.striping is not None and len(self.striping.shares) != len(self.disks):
            raise ValueError(f"{len(self.striping.shares)} shares for {len(self.disks)} disks")


def _words(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, cast("tuple[object, ...]", value)))
    return str(value)
