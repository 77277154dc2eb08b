"""Bytes of one arrangement in each kind of memory."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TierBytes:
    """How much lies where.

    Attributes:
        accelerator_bytes: device memory.
        pinned_bytes: host memory that the link reads or writes; locked in place.
        pageable_bytes: host memory that only the CPU touches.
        storage_bytes: NVMe.
    """

    accelerator_bytes: float = 0.0
    pinned_bytes: float = 0.0
    pageable_bytes: float = 0.0
    storage_bytes: float = 0.0

    @property
    def host_bytes(self) -> float:
        """Host memory of both kinds."""
        return self.pinned_bytes + self.pageable_bytes

    def __add__(self, other: "TierBytes") -> "TierBytes":
        return TierBytes(
            self.accelerator_bytes + other.accelerator_bytes,
            self.pinned_bytes + other.pinned_bytes,
            self.pageable_bytes + other.pageable_bytes,
            self.storage_bytes + other.storage_bytes,
        )
