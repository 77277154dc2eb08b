"""What crosses the link while an engine serves from both tiers, and how fast."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tandem.bench.records import BenchRow
from tandem.cost.lane_work import LaneWork, count_work
from tandem.cost.stage import partial_bytes, staged_qkv_bytes
from tandem.engine.building.parts import EngineParts
from tandem.plan.binding import LaneBinding
from tandem.plan.executed_op import ExecutedOp
from tandem.plan.program import OpKind, Part, Queue
from tandem.spec.tier import Tier

LINK_TARGET = 0.9
"""Of the probed rate."""
_LARGE_BYTES = 1 << 20
WAYS = {Queue.H2D: "to the device", Queue.D2H: "from the device"}


class LinkMeter:
    """Keeps the copies that an engine's executor tells of, while it is asked to."""

    def __init__(self) -> None:
        self._on = False
        self._ran: list[ExecutedOp] = []

    def executed(self, ran: ExecutedOp) -> None:
        """An operation has ended; an `OpListener`."""
        if self._on and ran.op.kind is OpKind.COPY and ran.op.queue in WAYS:
            self._ran.append(ran)

    @contextmanager
    def metering(self) -> Iterator[None]:
        """Copies within are kept."""
        self._ran.clear()
        self._on = True
        try:
            yield
        finally:
            self._on = False

    def copies(self, parts: EngineParts) -> "list[Copied]":
        """Those that were kept, except those of sampled ids: bytes by what the programs say, time
        by what the executor did.
        """
        sizes = _Sizes(parts)
        return [
            Copied(ran.op.queue, sizes.size_bytes(ran), ran.end_s - ran.start_s)
            for ran in self._ran
            if ran.op.part in (Part.QKV, Part.PARTIAL, Part.PAGES)
        ]


@dataclass(frozen=True, slots=True)
class Copied:
    """One copy; seconds from its beginning to its end."""

    queue: Queue
    size_bytes: int
    seconds: float


def link_rows(
    case: str, who: str, copies: list[Copied], both_bytes_per_s: dict[Queue, float]
) -> Iterator[BenchRow]:
    """Bytes over the time in which copies were in flight, each way: of all, and of large ones,
    which latency does not decide.

    Args:
        both_bytes_per_s: of each way, probed while the other copies as well.
    """
    for queue, name in WAYS.items():
        bound = LINK_TARGET * both_bytes_per_s[queue] / 1e9
        mine = [copy for copy in copies if copy.queue is queue and copy.size_bytes]
        large = [copy for copy in mine if copy.size_bytes >= _LARGE_BYTES]
        if mine:
            mean = sum(copy.size_bytes for copy in mine) / len(mine)
            yield BenchRow(case, who, f"link {name}, bytes of a copy", mean, "bytes")
        for what, chosen in ((", all copies", mine), (", copies from 1 MiB on", large)):
            seconds = sum(copy.seconds for copy in chosen)
            if seconds:
                rate = sum(copy.size_bytes for copy in chosen) / seconds / 1e9
                yield BenchRow(case, who, f"link {name}{what}", rate, "GB/s", bound)


class _Sizes:
    """Bytes of copies; a lane's work is counted once."""

    def __init__(self, parts: EngineParts) -> None:
        self._spec, self._page = parts.spec, parts.memory.page
        self._dtype = parts.precision.activations
        self._known: dict[int, tuple[LaneBinding, LaneWork]] = {}

    def size_bytes(self, ran: ExecutedOp) -> int:
        op, program = ran.op, ran.program
        if op.part is Part.PAGES:
            copied = [each for each in program.template.ops if each.part is Part.PAGES]
            transfer = program.transfers[copied.index(op)]
            return len(transfer.source_blocks) * self._page.bytes_per_block
        works = [self._work(program.lanes[lane].binding) for lane in ran.lanes]
        tier = Tier.HOST if (op.part is Part.QKV) == (op.queue is Queue.D2H) else Tier.DEVICE
        queries = sum(work.attention(tier, op.layer).tokens for work in works)
        if op.part is Part.PARTIAL:
            return partial_bytes(self._spec, queries)
        appended = sum(work.num_appended(tier) for work in works)
        return staged_qkv_bytes(self._spec, queries, appended, self._dtype)

    def _work(self, binding: LaneBinding) -> LaneWork:
        known = self._known.get(id(binding))
        if known is None:
            work = count_work(binding, self._page.block_size, self._spec.layer_windows)
            known = self._known[id(binding)] = (binding, work)
        return known[1]
