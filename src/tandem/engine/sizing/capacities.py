"""How much memory an engine may use."""

from dataclasses import dataclass, replace


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
        room_bytes: of host DRAM, what everything together may take beside that: what is available
            less a margin; None: not bounded.
        graphs: the accelerator can have steps recorded, and launched as one.
        experts_at_once: kernels take all of a mixture's experts at once; else the host asks how
            many tokens each has.
        elastic: how much host DRAM may be used was not asked for: it is as much as leaves room for
            what comes on top, and KV takes no more of it than it does by default.
    """

    device_bytes: int
    host_bytes: int
    device_location: str = "device"
    real: bool = True
    process_bytes: int = 0
    compiled: bool = True
    device_limit_bytes: int | None = None
    host_limit_bytes: int | None = None
    room_bytes: int | None = None
    graphs: bool = False
    experts_at_once: bool = True
    elastic: bool = False

    @property
    def host_memory_bytes(self) -> int:
        """Of host DRAM, what `--cpu-memory` bounds."""
        return self.device_bytes if self.device_location == "host" else self.host_bytes

    def with_host_memory(self, size_bytes: int) -> "Capacities":
        """With so much of it."""
        if self.device_location == "host":
            return replace(self, device_bytes=size_bytes)
        return replace(self, host_bytes=size_bytes)

    def with_emulated(self, size_bytes: int) -> "Capacities":
        """With so much on an emulated accelerator, which leaves the host what was not asked for."""
        in_host = self.host_bytes
        if self.elastic and self.room_bytes is not None:
            in_host = max(0, self.room_bytes - size_bytes)
        return replace(self, device_bytes=size_bytes, host_bytes=in_host)

    @property
    def device_in_host(self) -> bool:
        """An accelerator's memory lies in the host's, too."""
        return self.device_location == "device" and not self.real
