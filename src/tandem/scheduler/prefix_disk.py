"""Cached prefixes on the disk: what is in memory is kept there, and brought back when asked for."""

from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from tandem.memory.disk_index import DiskIndex
from tandem.memory.prefix_cache import DiskStats
from tandem.plan.page_jobs import PageJob, PageJobDone, PageRead, PageWrite
from tandem.scheduler.kv_manager import KVManager
from tandem.scheduler.placement import reserve
from tandem.scheduler.prefix_room import PrefixRoom
from tandem.scheduler.reading import Found, ReadRule
from tandem.scheduler.rows import UNLIMITED
from tandem.scheduler.sequence import Sequence
from tandem.spec.tier import Tier

_MOST_WRITES = 64
_WRITTEN_SHARE = 4  # of the slots: what is being written can be read by nobody
_LOOK_AHEAD = 4


class _Lookup(NamedTuple):
    """What there is of a request's beginning.

    Attributes:
        wanted: to be read, in order. under_way: being read.
        cached: blocks of the lowest tier that hold some of it.
        ready: blocks in memory before the first of the others; `after`, all that there will be.
    """

    wanted: list[bytes]
    under_way: set[bytes]
    cached: list[int]
    ready: int
    after: int


class PrefixDisk:
    """Decides what is written to the disk and read from it, in jobs, and is told their ends.

    Every block that the lowest tier's prefix cache holds is written once, those that have been
    there longest first, since they are the next to go. A write holds nothing (`PageWrite`): a block
    that is given away before it was copied is not kept.

    A request is looked up when it might get a row. What the disk has of its beginning is read
    into blocks of the lowest tier, if that pays, and enters the prefix cache; the request waits for
    it, the others do not. It is looked up once per row that it gets, so that it cannot wait for
    ever for what others push out.

    Args:
        room: gives blocks of the lowest tier.
    """

    def __init__(self, index: DiskIndex, room: PrefixRoom, kv: KVManager, rule: ReadRule) -> None:
        self._index, self._room, self._kv, self._prefix = index, room, kv, kv.prefix
        self.rule = rule
        self._most_writes = max(1, min(_MOST_WRITES, index.num_slots // _WRITTEN_SHARE))
        self._unwritten: OrderedDict[int, bytes] = OrderedDict()
        self._writes: dict[int, PageWrite] = {}  # by block; void ones are only counted
        self._num_writes = 0
        self._reads: dict[bytes, PageRead] = {}
        self._awaited: dict[str, set[bytes]] = {}
        self._writing = True
        self._written = self._read = self._damaged = 0
        self._prefix.subscribe_publications(self._published)
        self._prefix.subscribe_evictions(self._evicted)

    @property
    def tier(self) -> Tier:
        """Whose blocks are written and filled."""
        return self._room.tier

    @property
    def num_reading(self) -> int:
        """Blocks that are being filled."""
        return len(self._reads)

    @property
    def num_writing(self) -> int:
        """Blocks that are being written."""
        return self._num_writes

    @property
    def stats(self) -> DiskStats:
        """Counts since the start, and what is there now."""
        index = self._index
        return DiskStats(
            len(index),
            index.num_slots,
            self._written,
            self._read,
            self._damaged,
            index.num_evicted,
            self._writing,
        )

    def ready(self, waiting: Iterable[Sequence]) -> Iterable[Sequence]:
        """Those that wait for nothing from the disk."""
        if not self._awaited:
            return waiting
        return [each for each in waiting if each.request_id not in self._awaited]

    def looks_up(self, waiting: Iterable[Sequence], rows_free: int, *, by_rank: bool) -> bool:
        """Whether `begin` might look somebody up: it need not be told who waits otherwise.

        Args:
            waiting: as they are queued. by_rank: they get rows in that order, not in another.
        """
        most = self._most_looked_at(rows_free)
        asked = islice(self.ready(waiting), most if by_rank else None)
        return most > 0 and not all(sequence.looked_up for sequence in asked)

    def _most_looked_at(self, rows_free: int) -> int:
        """Of those who wait, the first that might get a row soon."""
        return max(0, min(rows_free, _LOOK_AHEAD - len(self._awaited)))

    def begin(
        self, waiting: Iterable[Sequence], *, rows_free: int, growing: int, decodes: int
    ) -> list[PageJob]:
        """Jobs to submit now.

        Args:
            waiting: for a row, in their order; without those that wait for the disk.
            growing: rows that may still begin a block. decodes: those that decode.
        """
        jobs: list[PageJob] = []
        for sequence in islice(waiting, self._most_looked_at(rows_free)):
            if not sequence.looked_up:
                jobs += self._look_up(sequence, growing, decodes)
        while self._unwritten and self._num_writes < self._most_writes:
            block, digest = self._unwritten.popitem(last=False)
            slot = None if digest in self._index else self._index.reserve(digest)
            if slot is not None:
                self._writes[block] = PageWrite(block, digest, *slot)
                self._num_writes += 1
                jobs.append(self._writes[block])
        return jobs

    def done(self, ends: Iterable[PageJobDone]) -> None:
        """Jobs have ended."""
        for end in ends:
            if isinstance(end.job, PageWrite):
                self._was_written(end.job, end)
            else:
                self._was_read(end.job, end)

    def used(self, sequence: Sequence, num_blocks: int) -> None:
        """A sequence has got a row and begins with cached blocks."""
        self._index.used(sequence.digests[:num_blocks])
        sequence.looked_up = False

    def check(self) -> None:
        """What is said to be under way is.

        Raises:
            AssertionError: with the numbers.
        """
        self._index.check()
        assert len(self._writes) <= self._num_writes, "disk: a write that nobody counted"
        assert all(not write.void for write in self._writes.values()), "disk: a void write is kept"
        awaited = set[bytes]().union(*self._awaited.values())
        assert awaited <= self._reads.keys(), "disk: a request waits for what is not read"

    # --- writing ----------------------------------------------------------------------------------

    def _published(self, tier: Tier, block: int, digest: bytes) -> None:
        if tier is self.tier and self._writing and digest not in self._index:
            self._unwritten[block] = digest

    def _evicted(self, tier: Tier, block: int) -> None:
        if tier is self.tier:
            self._unwritten.pop(block, None)
            write = self._writes.pop(block, None)
            if write is not None:
                write.void = True

    def _was_written(self, write: PageWrite, end: PageJobDone) -> None:
        self._num_writes -= 1
        if self._writes.get(write.block) is write:
            del self._writes[write.block]
        if end.ok:
            self._index.written(write.digest, end.checksum, write.age)
            self._written += 1
        else:
            self._index.not_written(write.digest)
        if end.full:
            self._writing = False
            self._unwritten.clear()

    # --- reading ----------------------------------------------------------------------------------

    def _look_up(self, sequence: Sequence, growing: int, decodes: int) -> list[PageJob]:
        """Begin to read what a request lacks in memory."""
        found = self._found(sequence)
        if not (found.wanted or found.under_way) or not self._pays(found, sequence, decodes):
            sequence.looked_up = True
            return []
        if self.tier is Tier.DEVICE and not self._may_begin(sequence, growing):
            return []  # nor can it get a row
        sequence.looked_up = True
        jobs: list[PageJob] = []
        for block, digest in zip(self._take(found), found.wanted, strict=False):
            stored = self._index.begin_read(digest)
            read = self._reads[digest] = PageRead(stored.slot, digest, stored.checksum, block)
            jobs.append(read)
            found.under_way.add(digest)
        if found.under_way:
            self._awaited[sequence.request_id] = found.under_way
        return jobs

    def _found(self, sequence: Sequence) -> _Lookup:
        wanted: list[bytes] = []
        under_way: set[bytes] = set()
        cached: list[int] = []
        ready = after = 0
        for digest in sequence.digests[: (len(sequence.tokens) - 1) // self._kv.block_size]:
            if self._prefix.find(digest) is not None:
                entry = self._prefix.find_in(self.tier, digest)
                cached += [] if entry is None else [entry.block]
                ready += not (wanted or under_way)
            elif digest in self._reads:
                under_way.add(digest)
            elif self._index.find(digest) is not None:
                wanted.append(digest)
            else:
                break
            after += 1
        return _Lookup(wanted, under_way, cached, ready, after)

    def _take(self, found: _Lookup) -> list[int]:
        """Blocks to read into; not those that hold what the request begins with."""
        pool = self._kv.pools[self.tier]
        pool.share(found.cached)
        blocks = self._room.take(len(found.wanted))
        pool.release(found.cached, None)
        return blocks

    def _pays(self, found: _Lookup, sequence: Sequence, decodes: int) -> bool:
        size, fetched = self._kv.block_size, 0
        if self.tier is Tier.HOST:
            fetched = self._kv.num_arriving() + found.after - found.ready
        return self.rule.pays(
            Found(
                len(found.wanted),
                len(self._reads),
                fetched,
                found.ready * size,
                found.after * size,
                len(sequence.tokens),
                decodes,
            )
        )

    def _may_begin(self, sequence: Sequence, growing: int) -> bool:
        """Whether there is room for all of a request's tokens, as it is asked for a row."""
        matched = self._kv.matched(sequence, UNLIMITED)
        need = self._kv.admission_need(sequence, matched, UNLIMITED, len(sequence.tokens))
        return need.plus(reserve(growing, self._kv.total())).fits(self._kv.free())

    def _was_read(self, read: PageRead, end: PageJobDone) -> None:
        del self._reads[read.digest]
        self._index.end_read(read.digest, sound=end.ok)
        if end.ok:
            self._read += 1
            self.rule.was_read(end.time_s)
            self._room.keep(read.block, read.digest)
        else:
            self._damaged += 1
            self._room.give_back(read.block)
        for request_id, awaited in list(self._awaited.items()):
            awaited.discard(read.digest)
            if not awaited:
                del self._awaited[request_id]
