"""How much memory an engine may use."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Capacities:
    """Memory that Tandem may use.

    Attributes:
        device_bytes: on the accelerator; with no accelerator, of host DRAM for everything.
        host_bytes: of host DRAM for the host tier's KV; 0 with no accelerator.
        real: kernels take scratch memory from the device (not so on the emulated one).
        compiled: attention in host memory runs on the compiled kernels.
        device_limit_bytes, host_limit_bytes: most that a user could have it use of either; None:
            not known.
        process_bytes: what the process took before anything was loaded: Python and its libraries.
    """

    device_bytes: int
    host_bytes: int
    device_location: str = "device"
    real: bool = True
    process_bytes: int = 0
    compiled: bool = True
    device_limit_bytes: int | None = None
    host_limit_bytes: int | None = None
