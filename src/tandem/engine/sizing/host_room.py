"""What everything together may take of the host's memory, beside what the process has. Pure."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from tandem.engine.sizing.capacities import Capacities
from tandem.memory.budget import describe_sum
from tandem.memory.ledger import MemoryLedger
from tandem.spec.errors import ShortOfMemoryError
from tandem.spec.units import MIB, format_size

_ROUNDS = 4
"""Of less memory, until a plan keeps the room: what comes on top hardly depends on it."""
_EMULATED = "emulated accelerator"
_Plan = TypeVar("_Plan")


class NoRoomError(ShortOfMemoryError):
    """Everything together would leave no margin.

    Args:
        left_bytes: of the room, beside what comes on top of what `--cpu-memory` bounds.
        device_left_bytes: of the room, beside all but an emulated accelerator.
    """

    def __init__(self, message: str, left_bytes: int, device_left_bytes: int) -> None:
        super().__init__(message, param="cpu_memory")
        self.left_bytes, self.device_left_bytes = left_bytes, device_left_bytes


def plan_within_room(
    plan: Callable[[Capacities], _Plan],
    ledger_of: Callable[[_Plan], MemoryLedger],
    capacities: Capacities,
) -> _Plan:
    """`plan` with as much host memory as leaves room for all that comes on top of it.

    Where it was asked for how much, no less will do.

    Raises:
        NoRoomError: more would be taken than there is room for; names every number.
    """
    found = plan(capacities)
    for _ in range(_ROUNDS):
        ledger = ledger_of(found)
        if _keeps_room(ledger, capacities):
            return found
        less = _left_bytes(ledger, capacities)
        if not capacities.elastic or less <= 0:
            break
        capacities = capacities.with_host_memory(less)
        found = plan(capacities)
    raise _too_much(ledger_of(found), capacities)


def disk_hint(capacities: Capacities, beside: Mapping[str, int]) -> tuple[str, ...]:
    """How fewer layers would stay on disk, as far as that is known.

    Args:
        beside: of host memory, by label, what comes on top of what `--cpu-memory` bounds.
    """
    if capacities.elastic:
        return (
            "shorter requests (--max-model-len) or fewer bits (--quantization) would leave fewer "
            "layers on disk",
        )
    if capacities.room_bytes is None:
        return ()
    on_top = sum(size for label, size in beside.items() if label != "process")
    device = capacities.device_bytes if capacities.device_in_host else 0
    most = (capacities.room_bytes - on_top - device) // MIB
    if most * MIB <= capacities.host_memory_bytes:
        return ()
    return (f"up to --cpu-memory {most}MiB, or auto, would leave fewer layers on disk",)


def _keeps_room(ledger: MemoryLedger, capacities: Capacities) -> bool:
    room = capacities.room_bytes
    return room is None or sum(_needed(ledger, capacities).values()) <= room


def _left_bytes(ledger: MemoryLedger, capacities: Capacities) -> int:
    """Of the room, beside what comes on top of what `--cpu-memory` bounds; 0 if it bounds nothing.

    The ledger's limit is both.
    """
    limit = ledger.totals("host").capacity_bytes
    if limit is None or capacities.room_bytes is None:
        return 0
    on_top = limit - capacities.host_memory_bytes - capacities.process_bytes
    device = ledger.totals("device").predicted_bytes if capacities.device_in_host else 0
    return capacities.room_bytes - on_top - device


def _needed(ledger: MemoryLedger, capacities: Capacities) -> dict[str, int]:
    """By label, beside what the process has."""
    needed = {
        entry.label: entry.predicted_bytes
        for entry in ledger.entries
        if entry.location == "host" and entry.label != "process"
    }
    if capacities.device_in_host:
        needed[_EMULATED] = ledger.totals("device").predicted_bytes
    return needed


def _too_much(ledger: MemoryLedger, capacities: Capacities) -> NoRoomError:
    room, needed = capacities.room_bytes or 0, _needed(ledger, capacities)
    on_device = needed.get(_EMULATED, 0)
    return NoRoomError(
        f"host memory too small for all that would lie there: "
        f"{describe_sum(needed)} needed, {format_size(room)} available less a margin",
        _left_bytes(ledger, capacities),
        room - sum(needed.values()) + on_device,
    )
