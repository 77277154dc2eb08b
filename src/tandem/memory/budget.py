"""Capacity of one memory and what other than KV blocks takes of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tandem.spec.errors import ShortOfMemoryError
from tandem.spec.units import format_size

CAPACITY_PARAMS = {"device": "gpu_memory", "host": "cpu_memory"}
NOTHING: Mapping[str, int] = MappingProxyType({})


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
            ShortOfMemoryError: more is taken than there is; names every number.
        """
        if self.left_bytes < 0:
            raise self.shortage()
        return self.left_bytes

    def shortage(
        self, even: str = "", beside_bytes: Mapping[str, int] = NOTHING
    ) -> ShortOfMemoryError:
        """More is needed than there is.

        Args:
            even: whatever has been done about it, behind "too small".
            beside_bytes: needed beside `used_bytes`, by label.
        """
        needed = describe_sum({**beside_bytes, **self.used_bytes})
        return ShortOfMemoryError(
            f"{self.location} memory too small{even}: {needed} needed, "
            f"{format_size(self.capacity_bytes)} there",
            param=CAPACITY_PARAMS.get(self.location),
        )


def describe_sum(sizes_bytes: Mapping[str, int]) -> str:
    """`weights 3.1 GiB + workspace 200.0 MiB = 3.3 GiB`."""
    total = format_size(sum(sizes_bytes.values()))
    parts = [f"{label} {format_size(size)}" for label, size in sizes_bytes.items() if size]
    return f"{' + '.join(parts)} = {total}" if len(parts) > 1 else "".join(parts) or total
