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

    def workspace_bytes(self) -> int | None:
        """Most that activations have taken at once; None if not known."""
        ...

    def staging_bytes(self) -> int | None:
        """Most that host buffers between queues have taken at once; None if not known."""
        ...
