"""Capacity of one memory and what other than KV blocks takes of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tandem.spec.errors import ConfigError
from tandem.spec.units import format_size

CAPACITY_PARAMS = {"device": "gpu_memory", "host": "cpu_memory"}


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """Bytes of one location: `capacity_bytes` of which `used_bytes` (by label) are taken."""

    location: str
    capacity_bytes: int
    used_bytes: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def left_bytes(self) -> int:
        """Bytes not taken; negative if more is taken than there is."""
        return self.capacity_bytes - sum(self.used_bytes.values())

    def require(self) -> int:
        """`left_bytes`.

        Raises:
            ConfigError: more is taken than there is; names every number.
        """
        if self.left_bytes < 0:
            raise ConfigError(
                f"{self.location} memory too small: {self.describe_used()} needed, "
                f"{format_size(self.capacity_bytes)} there; {self.remedy()}",
                param=CAPACITY_PARAMS.get(self.location),
            )
        return self.left_bytes

    def describe_used(self) -> str:
        """`weights 3.1 GiB + workspace 200.0 MiB = 3.3 GiB`."""
        total = format_size(sum(self.used_bytes.values()))
        parts = [f"{label} {format_size(size)}" for label, size in self.used_bytes.items() if size]
        return f"{' + '.join(parts)} = {total}" if len(parts) > 1 else "".join(parts) or total

    def remedy(self) -> str:
        """What to do about too small a capacity."""
        param = CAPACITY_PARAMS.get(self.location)
        if param is None:
            return "free some of it"
        lower = ", or lower --max-num-batched-tokens" if self.used_bytes.get("workspace") else ""
        return f"raise --{param.replace('_', '-')}{lower}"
