"""A charged arena: device activations and workspaces count against a budget (contract 12)."""

from collections.abc import Hashable


class ArenaOverflowError(MemoryError):
    """Activations outgrew what was set aside for them."""


class Arena:
    """Counts live bytes per owner against a capacity, and remembers the peak.

    Args:
        capacity_bytes: None counts without refusing.
    """

    def __init__(self, capacity_bytes: int | None = None) -> None:
        self._capacity = capacity_bytes
        self._charges: dict[Hashable, int] = {}
        self._live = 0
        self._peak = 0

    @property
    def live_bytes(self) -> int:
        """Bytes charged now."""
        return self._live

    @property
    def peak_bytes(self) -> int:
        """Most bytes ever charged at once."""
        return self._peak

    def charge(self, owner: Hashable, size_bytes: int) -> None:
        """Set `owner`'s share to `size_bytes` (0 frees it).

        Raises:
            ArenaOverflowError: the capacity would be exceeded; the charge is not made.
        """
        live = self._live - self._charges.get(owner, 0) + size_bytes
        if self._capacity is not None and live > self._capacity:
            raise ArenaOverflowError(
                f"{owner} needs {size_bytes} bytes; {self._live} of {self._capacity} are in use"
            )
        if size_bytes:
            self._charges[owner] = size_bytes
        else:
            self._charges.pop(owner, None)
        self._live = live
        self._peak = max(self._peak, live)
