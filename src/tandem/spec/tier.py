"""Where bytes can lie."""

from enum import IntEnum


class Tier(IntEnum):
    """A memory tier for KV blocks. DEVICE is the executing accelerator's own memory.

    With `--accelerator none` the executing device is the host itself: its KV lies in DEVICE
    (which is then host DRAM) and the HOST pool is empty.
    """

    DEVICE = 0
    HOST = 1

    @property
    def label(self) -> str:
        """Lower-case name for tables and metrics."""
        return self.name.lower()


TIERS = (Tier.DEVICE, Tier.HOST)
