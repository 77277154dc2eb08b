"""What a block of a pool can be, and how many of each there are."""

from dataclasses import dataclass
from enum import IntEnum

from tandem.spec.tier import Tier


class BlockState(IntEnum):
    """The one state a block is in."""

    FREE = 0
    """May be allocated; perhaps still holds cached content."""
    HELD = 1
    """At least one holder."""
    LEASED = 2
    """No holder, but operations in flight name it."""
    IN_TRANSFER = 3
    """Destination of a copy that has neither completed nor been cancelled."""


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """Blocks by state; `free + held + leased + in_transfer == total` always.

    Attributes:
        cached_free: those of `free` that still hold content which the prefix cache can find.
    """

    total: int
    free: int
    held: int
    leased: int
    in_transfer: int
    cached_free: int


class PoolExhausted(Exception):  # noqa: N818 (a condition to act on, no error)
    """A pool has fewer available blocks than asked for; it was left unchanged."""

    def __init__(self, tier: Tier, needed: int, available: int) -> None:
        super().__init__(f"{tier.label} pool: {needed} blocks needed, {available} available")
        self.tier = tier
        self.needed = needed
        self.available = available
