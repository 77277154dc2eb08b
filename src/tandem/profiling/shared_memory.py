"""How cores, link and disks share the host's memory, from what a profile measured of contention."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tandem.profiling.measurements import BusyThing, Contention, HostMeasurements

_NOISE = 0.98
"""What keeps so much of its rate is not taken to be slowed down."""


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """One pool of bytes per second, which everything draws from; who asks for more than there is,
    all go slower alike. Charges make that come out as it was measured.

    Attributes:
        bytes_per_s: of the pool: what the cores read, or get together with link or disks.
        link_charge, disk_charge: bytes of the pool that a byte copied over the link, or read from
            disk, costs: more than 1 where both together get less than the pool gives.
        product_bytes_per_s: that products draw, however few they read: cores are shared as well.
    """

    bytes_per_s: float
    link_charge: float = 1.0
    disk_charge: float = 1.0
    product_bytes_per_s: float = 0.0


def shared_memory(measured: "HostMeasurements") -> SharedMemory:
    """Fitted so that attention beside the link, and beside disks, get as much together as they did,
    and products beside the one that slows them down most as much as they did, as far as each alone
    asks for no more than there is. What was not measured is charged as it is.
    """
    attention, products = _beside(measured, "memory"), _beside(measured, "cores")
    both = map(_together_bytes_per_s, attention.values())
    pool = max([measured.memory.read_bytes_per_s, *both])
    charges = {busy: _charge(pool, found) for busy, found in attention.items()}
    drawn = (_drawn(pool, charges.get(busy, 1.0), found) for busy, found in products.items())
    return SharedMemory(
        pool,
        charges.get("link", 1.0),
        charges.get("disks", 1.0),
        max(drawn, default=0.0),
    )


def _beside(measured: "HostMeasurements", bound_by: str) -> "dict[BusyThing, Contention]":
    """By what programs have beside the CPU's work: nothing else in them copies, or dequantizes, on
    the host.
    """
    found: Iterable[Contention] = measured.contention
    return {
        each.busy: each
        for each in found
        if each.bound_by == bound_by and each.busy in ("link", "disks")
    }


def _together_bytes_per_s(found: "Contention") -> float:
    """Attention reads, the link reads, a disk writes: each byte once."""
    return found.work_beside_per_s + found.load_beside_bytes_per_s


def _charge(pool: float, found: "Contention") -> float:
    """So that both at full speed ask for as many times the pool as they are slowed down, and the
    load alone for no more than there is. The pool is no less than what both get, so that less than
    1 is never needed.
    """
    load = found.load_alone_bytes_per_s
    kept = _together_bytes_per_s(found) / (found.work_alone_per_s + load)
    if kept >= _NOISE:
        return 1.0
    asked = pool / kept
    return max(1.0, min(pool, asked - found.work_alone_per_s) / load)


def _drawn(pool: float, charge: float, found: "Contention") -> float:
    """Likewise, by products beside a load that is charged so much."""
    kept = found.work_beside_per_s / found.work_alone_per_s
    if kept >= _NOISE:
        return 0.0
    return min(pool, max(0.0, pool / kept - charge * found.load_alone_bytes_per_s))
