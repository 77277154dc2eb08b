"""Named buffers with a place, opaque to queues that cannot reach that place."""

import threading
from enum import StrEnum

import torch

from tandem.plan.program import Queue
from tandem.runtime.arena import Arena

_DEVICE_QUEUES = frozenset({Queue.ACCEL, Queue.H2D, Queue.D2H, Queue.WEIGHTS})
_HOST_QUEUES = frozenset({Queue.CPU, Queue.H2D, Queue.D2H, Queue.WEIGHTS})


class Place(StrEnum):
    """Which memory a buffer is in."""

    DEVICE = "device"
    HOST = "host"


class DeviceAccessError(AssertionError):
    """A queue touched memory that it cannot reach: a copy is missing from the program."""


class PoisonedReadError(AssertionError):
    """A buffer was read while an operation was still writing it: a wait is missing."""


class _Poison:
    """Stands in a buffer from the start of the operation that writes it until its end."""

    __slots__ = ("old", "owner")

    def __init__(self, owner: object, old: object) -> None:
        self.owner, self.old = owner, old


Key = tuple[str, int]


class BufferSpace:
    """All step-to-step buffers of an executor: `(name, lane key) -> value`, each in one place.

    Values are tensors, or objects with a `size_bytes` property that hold several. Device buffers
    are charged to the arena, host buffers are counted; nothing but an operation on a queue that
    reaches the place can see a value.
    """

    def __init__(self, arena: Arena) -> None:
        self._arenas = {Place.DEVICE: arena, Place.HOST: Arena()}
        self._places: dict[Key, Place] = {}
        self._values: dict[Key, object] = {}
        # queues may be threads; dropping a lane must not meet another's insertion
        self._lock = threading.Lock()

    @property
    def staging_peak_bytes(self) -> int:
        """Most bytes of host buffers at once."""
        return self._arenas[Place.HOST].peak_bytes

    def put(self, key: Key, place: Place, value: object, queue: Queue) -> None:
        """Store the result of an operation that runs on `queue`."""
        _check_reach(key, place, queue)
        with self._lock:
            self._arenas[place].charge(key, size_bytes(value))
            self._places[key] = place
            self._values[key] = value

    def get(self, key: Key, queue: Queue, owner: object = None) -> object:
        """Read a buffer from an operation (`owner`) on `queue`.

        Raises:
            DeviceAccessError: the queue cannot reach the buffer's memory.
            PoisonedReadError: another operation is writing it.
            KeyError: nothing was ever stored.
        """
        _check_reach(key, self._places[key], queue)
        value = self._values[key]
        if isinstance(value, _Poison):
            if value.owner is not owner:
                raise PoisonedReadError(f"{key} is read on {queue} while {value.owner} writes it")
            return value.old
        return value

    def contains(self, key: Key) -> bool:
        """True if something was stored under `key` and not dropped."""
        return key in self._values

    def poison(self, key: Key, owner: object) -> None:
        """Mark an existing buffer as being written by `owner`; its own reads see the old value."""
        if key in self._values:
            value = self._values[key]
            old = value.old if isinstance(value, _Poison) else value
            self._values[key] = _Poison(owner, old)

    def discard(self, key: Key, queue: Queue) -> None:
        """Free one buffer from an operation that runs on `queue`, if it is there."""
        with self._lock:
            if key in self._values:
                _check_reach(key, self._places[key], queue)
                self._arenas[self._places[key]].charge(key, 0)
                del self._values[key], self._places[key]

    def drop(self, lane_key: int) -> None:
        """Free all buffers of a lane."""
        with self._lock:
            for key in [k for k in self._values if k[1] == lane_key]:
                self._arenas[self._places[key]].charge(key, 0)
                del self._values[key], self._places[key]


def size_bytes(value: object) -> int:
    """Bytes of a stored value: a tensor, a tuple of values, or an object that knows its size."""
    if isinstance(value, torch.Tensor):
        return value.nbytes
    if isinstance(value, tuple):
        return sum(size_bytes(item) for item in value)
    return int(getattr(value, "size_bytes", 0))


def _check_reach(key: Key, place: Place, queue: Queue) -> None:
    if queue not in (_DEVICE_QUEUES if place is Place.DEVICE else _HOST_QUEUES):
        raise DeviceAccessError(f"queue {queue} cannot reach {key} in {place} memory")
