"""Every byte with its place, label, prediction and measurement (contract 12)."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from tandem.memory.budget import MemoryBudget


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One user of memory.

    Attributes:
        location: "device", "host" or another memory's name.
        label: what the bytes are for, e.g. "weights", "kv pool", "pinned staging".
        actual_bytes: as measured, None before.
    """

    location: str
    label: str
    predicted_bytes: int
    actual_bytes: int | None = None

    @property
    def charged_bytes(self) -> int:
        """What counts against capacity: measured if known, else predicted."""
        return self.predicted_bytes if self.actual_bytes is None else self.actual_bytes


@dataclass(frozen=True, slots=True)
class LocationTotals:
    """Sums over one location's entries beside what its driver or cgroup says.

    Attributes:
        actual_bytes: sum over measured entries only, None if none is.
        capacity_bytes: None if no bound is known.
        peak_bytes: highest use that the driver or the kernel saw, None before the first look.
        grown_bytes: rise of that peak since `mark_warm`, None before it.
    """

    location: str
    predicted_bytes: int
    actual_bytes: int | None
    charged_bytes: int
    capacity_bytes: int | None
    peak_bytes: int | None
    grown_bytes: int | None


class MemoryLedger:
    """Who takes how much of which memory; refuses reservations beyond a capacity.

    Args:
        capacity_bytes: by location; a location without one is unbounded.
    """

    def __init__(self, capacity_bytes: Mapping[str, int] | None = None) -> None:
        self._capacity_bytes = dict(capacity_bytes or {})
        self._entries: dict[tuple[str, str], LedgerEntry] = {}
        self._peak_bytes: dict[str, int] = {}
        self._warm_bytes: dict[str, int] = {}

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """All entries in order of reservation."""
        return tuple(self._entries.values())

    def reserve(self, location: str, label: str, predicted_bytes: int) -> None:
        """Enter a user of memory before its bytes are allocated.

        Raises:
            ConfigError: the location's capacity does not allow it; the ledger is unchanged.
            ValueError: the label is taken in that location, or the size is negative.
        """
        key = (location, label)
        if key in self._entries:
            raise ValueError(f"'{label}' is reserved in {location} memory already")
        if predicted_bytes < 0:
            raise ValueError(f"'{label}' cannot take {predicted_bytes} bytes")
        self._entries[key] = LedgerEntry(location, label, predicted_bytes)
        if location in self._capacity_bytes and self.budget(location).left_bytes < 0:
            refused = self.budget(location)
            del self._entries[key]
            refused.require()

    def release(self, location: str, label: str) -> None:
        """Remove an entry whose bytes have been given back.

        Raises:
            KeyError: no such entry.
        """
        del self._entries[location, label]

    def record_actual(self, location: str, label: str, actual_bytes: int) -> None:
        """Note what an entry was measured to take; a fact, so never refused.

        Raises:
            KeyError: no such entry.
        """
        entry = self._entries[location, label]
        self._entries[location, label] = replace(entry, actual_bytes=actual_bytes)

    def record_peak(self, location: str, peak_bytes: int) -> None:
        """Note the highest use that the driver or the kernel reports for a location."""
        self._peak_bytes[location] = max(peak_bytes, self._peak_bytes.get(location, 0))

    def mark_warm(self) -> None:
        """Warm-up at maximum shape is over; peaks should not rise from here on."""
        self._warm_bytes = dict(self._peak_bytes)

    def budget(self, location: str) -> MemoryBudget:
        """A location's capacity and charged entries, e.g. to size KV pools with the rest.

        Raises:
            KeyError: the location has no capacity.
        """
        used = {e.label: e.charged_bytes for e in self.entries if e.location == location}
        return MemoryBudget(location, self._capacity_bytes[location], used)

    def totals(self, location: str) -> LocationTotals:
        """Sums, capacity and peak of one location."""
        entries = [e for e in self.entries if e.location == location]
        measured = [e.actual_bytes for e in entries if e.actual_bytes is not None]
        peak, warm = self._peak_bytes.get(location), self._warm_bytes.get(location)
        return LocationTotals(
            location=location,
            predicted_bytes=sum(e.predicted_bytes for e in entries),
            actual_bytes=sum(measured) if measured else None,
            charged_bytes=sum(e.charged_bytes for e in entries),
            capacity_bytes=self._capacity_bytes.get(location),
            peak_bytes=peak,
            grown_bytes=None if peak is None or warm is None else peak - warm,
        )

    @property
    def locations(self) -> tuple[str, ...]:
        """All locations with a capacity, an entry or a peak, in order of first mention."""
        named = [*self._capacity_bytes, *(e.location for e in self.entries), *self._peak_bytes]
        return tuple(dict.fromkeys(named))

    def as_rows(self) -> list[LedgerEntry]:
        """Entries grouped by location, for tables; pair them with `totals`."""
        return [e for place in self.locations for e in self.entries if e.location == place]

    def to_json(self) -> str:
        """`{"entries": [...], "totals": [...]}`, the fields of the classes above."""
        return json.dumps(
            {
                "entries": [asdict(entry) for entry in self.as_rows()],
                "totals": [asdict(self.totals(place)) for place in self.locations],
            }
        )
