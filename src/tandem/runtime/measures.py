"""What a device says about itself, asked of its driver."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tandem.runtime.overlap_meter import OverlapMeter


_ROUNDING = 1e-9
"""Of a share: what sums of times without a gap may differ by."""


@dataclass(frozen=True, slots=True)
class OverlapTotals:
    """How accelerator and CPU worked beside each other, summed over steps; seconds.

    Attributes:
        steps: sweeps whose periods are counted.
        step_s: their periods, which follow each other while there is work.
        accel_busy_s: of it, while the accelerator worked.
        cpu_attention_s: attention on the CPU. hidden_s: of it, while the accelerator worked.
    """

    steps: int = 0
    step_s: float = 0.0
    accel_busy_s: float = 0.0
    cpu_attention_s: float = 0.0
    hidden_s: float = 0.0

    @property
    def accel_idle_share(self) -> float | None:
        """Of the time with work, in which the accelerator did none; None without steps."""
        if not self.step_s:
            return None
        share = 1 - self.accel_busy_s / self.step_s
        return share if share > _ROUNDING else 0.0

    @property
    def hidden_share(self) -> float | None:
        """Of the CPU's attention, beside the accelerator's work; None if there was none."""
        return self.hidden_s / self.cpu_attention_s if self.cpu_attention_s else None

    def since(self, before: "OverlapTotals") -> "OverlapTotals":
        """What has come on top of an earlier sum."""
        names = [field.name for field in fields(OverlapTotals)]
        return OverlapTotals(*(getattr(self, name) - getattr(before, name) for name in names))

    @staticmethod
    def sum(parts: "Iterable[OverlapTotals]") -> "OverlapTotals":
        """All of them together."""
        parts = tuple(parts)
        names = [field.name for field in fields(OverlapTotals)]
        return OverlapTotals(*(sum(getattr(part, name) for part in parts) for name in names))


class DeviceMeasures(Protocol):
    """Facts about the accelerator that an executor runs on."""

    @property
    def description(self) -> str:
        """Name and memory in words."""
        ...

    def peak_bytes(self) -> int:
        """Most memory ever in use, by the driver's count where there is one."""
        ...

    def workspace_bytes(self) -> int | None:
        """Most that activations have taken at once; None if not known."""
        ...

    def staging_bytes(self) -> int | None:
        """Most that host buffers between queues have taken at once; None if not known."""
        ...

    def pinned_bytes(self) -> int:
        """Host memory that is locked for the device, staging buffers left out."""
        ...

    @property
    def overlap(self) -> "OverlapMeter | None":
        """How it works beside the CPU; None without queues that run at once, in times that mean
        something.
        """
        ...
