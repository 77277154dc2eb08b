"""What a device says about itself, asked of its driver."""

from typing import Protocol


class DeviceMeasures(Protocol):
    """Facts about the accelerator that an executor runs on."""

    @property
    def description(self) -> str:
        """Name and memory in words."""
        ...

    def peak_bytes(self) -> int:
        """Most memory ever in use, by the driver's count where there is one."""
        ...
