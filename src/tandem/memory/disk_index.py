"""Which KV blocks are on the disk, and where: accounting only, as a pool's."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class StoredBlock(NamedTuple):
    """A slot that holds a block.

    Attributes:
        checksum: of its content. age: number of the write.
    """

    slot: int
    digest: bytes
    checksum: int
    age: int


class DiskIndex:
    """Slots of equal size by the digests of what they hold.

    A slot is free, being written, or holds a block; a block that is being read keeps its slot.
    Where none is free, the block that was used longest ago gives way.

    Args:
        stored: what is there; of equal digests the latest counts, slots beyond the last are none.
    """

    def __init__(self, num_slots: int, stored: Iterable[StoredBlock] = ()) -> None:
        self._total = num_slots
        self._stored: OrderedDict[bytes, StoredBlock] = OrderedDict()  # longest unused first
        self._written: dict[bytes, int] = {}
        self._read: set[bytes] = set()
        for entry in sorted(stored, key=lambda entry: entry.age):
            if entry.slot < num_slots:
                self._stored.pop(entry.digest, None)
                self._stored[entry.digest] = entry
        taken = {entry.slot for entry in self._stored.values()}
        self._free = [slot for slot in range(num_slots - 1, -1, -1) if slot not in taken]
        self._age = max((entry.age for entry in self._stored.values()), default=0)
        self.num_evicted = 0

    @property
    def num_slots(self) -> int:
        """Blocks that there is room for."""
        return self._total

    def __len__(self) -> int:
        return len(self._stored)

    def __contains__(self, digest: bytes) -> bool:
        """True if the block is there, or is being written."""
        return digest in self._stored or digest in self._written

    def find(self, digest: bytes) -> StoredBlock | None:
        """Where a block is that can be read."""
        return self._stored.get(digest)

    def reserve(self, digest: bytes) -> tuple[int, int] | None:
        """A slot for a block that is not there, and the number of its write; None if all that is
        there is being read or written.
        """
        assert digest not in self, "a block is written once"
        if not self._free and not self._evict():
            return None
        slot = self._free.pop()
        self._written[digest] = slot
        self._age += 1
        return slot, self._age

    def written(self, digest: bytes, checksum: int, age: int) -> None:
        """The block is there; the latest to give way."""
        self._stored[digest] = StoredBlock(self._written.pop(digest), digest, checksum, age)

    def not_written(self, digest: bytes) -> None:
        """The block's slot holds nothing."""
        self._free.append(self._written.pop(digest))

    def begin_read(self, digest: bytes) -> StoredBlock:
        """The block keeps its slot until `end_read`."""
        self._read.add(digest)
        return self._stored[digest]

    def end_read(self, digest: bytes, *, sound: bool) -> None:
        """The block was read; if it is damaged, its slot is free."""
        self._read.remove(digest)
        if not sound:
            self._free.append(self._stored.pop(digest).slot)

    def used(self, digests: Sequence[bytes]) -> None:
        """A sequence begins with these: they give way last, and the first of them after the others,
        which are of no use without it.
        """
        for digest in reversed(digests):
            if digest in self._stored:
                self._stored.move_to_end(digest)

    def check(self) -> None:
        """Every slot is in one state.

        Raises:
            AssertionError: with the numbers.
        """
        stored = [entry.slot for entry in self._stored.values()]
        slots = stored + list(self._written.values()) + self._free
        assert len(slots) == self._total, (
            f"disk: {len(stored)} stored, {len(self._written)} written, {len(self._free)} free of "
            f"{self._total}"
        )
        assert len(set(slots)) == len(slots), "disk: two blocks in a slot"
        assert self._read <= self._stored.keys(), "disk: a block gave way while it was read"
        assert all(digest == entry.digest for digest, entry in self._stored.items())

    def _evict(self) -> bool:
        for digest in self._stored:
            if digest not in self._read:
                self._free.append(self._stored.pop(digest).slot)
                self.num_evicted += 1
                return True
        return False
