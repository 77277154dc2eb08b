"""What no plan of a batch job exceeds: a linear programme over shares of weights and of KV.

For a number of sequences and of batches, for which memory has places as requests are so long
(`occupancy.py`), all shares are free: of layers that are streamed (none, or some, whose slots take
their room), of those that are read from disk before, of those that are left to the CPU in passes,
whole or their MLPs where these alone are elsewhere (all but as many as stay in slots, or some while
the others come), and of sequences with their KV on the accelerator, streamed, streamed with all of
their prompt recomputed, or attended on the CPU. A pass takes at least what each resource takes for
all of its work, and what waits for each other where the CPU attends. While the CPU computes a layer
or an MLP for all batches, no more of the others come than there are slots, since none of them is
done with before. Else nothing waits.
Costs and sizes are those of the
planner's own candidates, between which they are convex.
"""

import heapq
import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal, NamedTuple

from tandem.plan.weights import STREAM_SLOTS, stream_slots
from tandem.planner.offline.bound import Busy
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.candidates import BATCHES
from tandem.planner.offline.occupancy import Occupancy
from tandem.planner.offline.times import BlockTimes
from tandem.planner.question import Question
from tandem.planner.relaxation.programme import Entries, Programme, Solver

_Lends = Literal["none", "some", "all"]
_CLOSE = 1.01
"""Ranges of numbers of sequences whose ends differ by less are not divided further."""


@dataclass(frozen=True, slots=True)
class BlockCeiling:
    """The most output tokens per second of the job.

    Attributes:
        rows: sequences of the block that reaches it, in all batches, in the mean over its passes.
        streamed: share of the layers. resident, crossing, recomputed, cpu: of sequences.
        programmes: that were solved.
    """

    tokens_per_s: float
    rows: int
    streamed: float
    resident: float
    crossing: float
    recomputed: float
    cpu: float
    programmes: int


class _Least(NamedTuple):
    """The least time of a block, and the shares that reach it: weights, then each kind of KV."""

    block_s: float
    shares: tuple[float, ...]


class BlockCeilings:
    """Bounds for one question.

    Args:
        times: of the search whose plans are bounded.
    """

    def __init__(self, question: Question, times: BlockTimes) -> None:
        self._q, self._times, self._solver = question, times, Solver()
        self._layers, self._occupancy = question.model.num_layers, Occupancy(question.lengths)
        self._dram_bytes_per_s = question.hardware.host.pool_bytes_per_s
        self._programmes = 0

    def ceiling(self) -> BlockCeiling | None:
        """Over all numbers of sequences; None if not even one fits.

        A range's bound has its end's tokens in its begin's time, since time grows with sequences.
        """
        most = self._most_at_once()
        ties = itertools.count()
        queue: list[tuple[float, int, int, int, _Least]] = []

        def push(low: int, high: int) -> None:
            found = self._least(low, high, self._occupancy.places(low))
            if found is not None:
                heapq.heappush(queue, (-self._rate(high, found), next(ties), low, high, found))

        push(1, most)
        while queue:
            rate, _, low, high, found = heapq.heappop(queue)
            if high <= max(low, low * _CLOSE):
                weights, resident, crossing, cpu, *made = found.shares
                recomputed = made[0] if made else 0.0
                shares = (weights, resident, crossing, recomputed, cpu)
                return BlockCeiling(-rate, high, *shares, self._programmes)
            middle = min(high - 1, math.isqrt(low * high))
            push(low, middle)
            push(middle + 1, high)
        return None

    def _most_at_once(self) -> int:
        """Sequences in a pass, in the mean.

        If memory does not hold all requests at once, some place serves several one after the other,
        and there are too many passes for the job's tokens to fill all places.
        """
        lengths = self._q.lengths
        most = min(lengths.requests, self._times.footprint.max_rows * BATCHES[-1])
        held = bisect_left(
            range(1, most + 1), True, key=lambda rows: self._least(rows, rows, rows) is None
        )
        return max(1, min(most, math.ceil(self._occupancy.most_rows(max(1, held)))))

    def _rate(self, rows: int, least: _Least) -> float:
        return rows * self._q.lengths.generated_tokens / least.block_s

    def _least(self, low: int, high: int, places: int) -> _Least | None:
        """Of so many sequences in a pass, in any number of batches and of all types that may be
        chosen.

        Args:
            places: that memory must have.
        """
        precisions = self._times.precisions
        found: list[_Least] = []
        for batches, bits, host_kv in product(
            [count for count in BATCHES if count <= high],
            precisions.layer_choices,
            precisions.host_kv_choices,
        ):
            start = BlockCandidate(batches, 0, max(1, low // batches), 0, 0, 0, bits, host_kv)
            kinds = tuple(self._kinds(start))
            held = tuple(self._kinds(replace(start, resident_rows=max(1, places // batches))))
            # with few bits in streamed layers only, layers may stay in slots as well
            ways = (None,) if bits == "streamed" else (False, True)
            lacks = self._lacks(held)
            for streams, reads in product(ways, (False, True) if lacks else (False,)):
                solved = self._solve(kinds, held, streams, reads=reads)
                found += [solved] if solved is not None else []
            if (
                bits != "streamed"
                and self._layers > STREAM_SLOTS
                and not self._q.model.dense_layers
            ):
                found += self._lending(kinds, held, lacks=lacks)
        return min(found, default=None)

    def _lending(
        self,
        kinds: tuple[BlockCandidate, ...],
        held: tuple[BlockCandidate, ...],
        *,
        lacks: bool,
    ) -> Iterator[_Least]:
        """With MLPs, or whole layers, on the CPU, of which nothing is recomputed."""
        lends: _Lends
        for mlps in (True, False):
            if not mlps:
                kinds, held = (
                    tuple(kind for kind in each if not kind.recomputed_tokens)
                    for each in (kinds, held)
                )
            for lends, reads in product(("some", "all"), (False, True) if lacks else (False,)):
                solved = self._solve(kinds, held, True, reads=reads, lends=lends, mlps=mlps)
                if solved is not None:
                    yield solved

    def _kinds(self, resident: BlockCandidate) -> Iterator[BlockCandidate]:
        """All KV in one way each."""
        rows = resident.rows
        yield resident
        yield resident.shared(0, 0)
        yield resident.shared(0, rows)
        most = self._times.footprint.prompt // self._q.block_size * self._q.block_size
        if most and not any(self._q.model.layer_windows):
            yield replace(resident.shared(0, 0), recomputed_tokens=most)

    def _solve(
        self,
        kinds: tuple[BlockCandidate, ...],
        held: tuple[BlockCandidate, ...],
        streams: bool | None,
        *,
        reads: bool = False,
        lends: _Lends = "none",
        mlps: bool = False,
    ) -> _Least | None:
        """With that share of each kind of KV.

        Args:
            held: the same kinds with as many sequences as memory must have room for.
            streams: whether any layer is streamed, through slots that take their room however few
                pass through them; None: either way, by an average of no slots and all.
            reads: whether any of them is read from disk, through slots of host memory.
            lends: which streamed layers the CPU computes in passes: all but those that stay in the
                slots, or any number while all others come. mlps: only their MLPs are streamed, but
                of those on disk, and these are what the CPU computes.
        """
        if reads and streams is False:
            return None
        if streams and self._layers <= stream_slots(self._layers):
            return None
        apart = self._least_apart(held, reads=reads) if mlps else 0
        if apart is None:
            return None
        self._programmes += 1
        bound, programme = self._times.bound, Programme()
        passes = max(0.0, self._q.lengths.generated_tokens - 1)
        unit_s = bound.decode_s(kinds[0])  # so that times are about 1
        stay = stream_slots(self._layers) / self._layers
        prefill, decode = programme.column(1.0), programme.column(passes)
        lent = programme.column(upper=0.0 if lends == "none" else 1.0)
        read = programme.column(upper=1.0 if reads else 0.0)
        streamed = programme.column(upper=0.0 if streams is False else 1.0)
        shares = [programme.column() for _ in kinds]
        programme.equal([(share, 1.0) for share in shares], 1.0)
        for time, busy_of in ((prefill, bound.prefill_busy), (decode, bound.decode_busy)):
            busies = [self._resources(busy_of(kind)) for kind in kinds]
            away = self._away(kinds[0], mlps=mlps)
            loaded = self._resources(busy_of(away))
            all_read = loaded
            one = [0.0] * len(loaded)
            if lends != "none":
                one = self._least_more(busy_of, [self._away(kind, mlps=mlps) for kind in kinds])
            if reads:
                all_read = self._resources(busy_of(replace(away, on_disk=self._layers)))
            for resource, of_kinds in enumerate(zip(*busies, strict=True)):
                loads_s = loaded[resource] - busies[0][resource]
                reads_s = all_read[resource] - loaded[resource]
                if time == decode and lends == "all":
                    reads_s = 0.0  # they stay in the slots, too
                work: Entries = [(streamed, loads_s / unit_s), (time, -1.0)]
                work += [(read, reads_s / unit_s)]
                lent_s, kept = self._layers * one[resource], 0.0
                if time == decode and lends != "none":
                    lent_s += self._stay_beside_one * loads_s
                    kept = stay if lends == "all" else 0.0
                work += [(lent, lent_s / unit_s)]
                work += [(s, each / unit_s) for s, each in zip(shares, of_kinds, strict=True)]
                kept = max(kept, self._kept(kinds[0]))
                programme.at_most(work, kept * max(0.0, loads_s) / unit_s)
        way: Entries = [
            (s, bound.way_s(kind) / unit_s) for s, kind in zip(shares, kinds, strict=True)
        ]
        if lends != "none":
            each_away = [self._away(kind, mlps=mlps) for kind in kinds]
            away = each_away[0]
            one_s = min(
                bound.way_s(replace(each, lent=1)) - bound.way_s(each) for each in each_away
            )
            way.append((lent, self._layers * one_s / unit_s))
            programme.at_most([(streamed, -1.0)], -apart / self._layers)
            programme.at_most([(lent, 1.0), (streamed, -1.0)], -stay)
            if lends == "all":
                programme.at_most([(lent, -1.0), (streamed, 1.0)], stay)
            else:
                waits: Entries = [(streamed, self._layers * bound.lent_s(away)[1] / unit_s)]
                waits += [(lent, self._layers * self._lent_s(away, reads=reads) / unit_s)]
                programme.at_most([(decode, -1.0), *waits], 0.0)
            if reads:  # none of which is lent
                programme.at_most([(lent, 1.0), (read, 1.0), (streamed, -1.0)], 0.0)
        programme.at_most([(decode, -1.0), *way], 0.0)
        programme.at_most([(read, 1.0), (streamed, -1.0)], 0.0)
        away = self._away(held[0], mlps=mlps)
        columns = streamed, read
        self._memory(programme, columns, shares, held, away, slots=bool(streams), reads=reads)
        optimum = self._solver.minimise(programme)
        if optimum is None:
            return None
        return _Least(optimum.value * unit_s, optimum.columns[streamed:])

    def _least_apart(self, kinds: tuple[BlockCandidate, ...], *, reads: bool) -> int | None:
        """The fewest MLPs, in whole numbers, without which the accelerator may have room for the
        rest; None: there are not enough, or the host does not hold them. Where some layers are read
        from disk, these are whole, and none may be needed.
        """
        if reads:
            return 0
        footprint, question = self._times.footprint, self._q
        for count in range(self._layers + 1):
            apart = [replace(kind, streamed=count, mlps=True) for kind in kinds]
            device = min(footprint.device(each, prompts_on_host=True).total for each in apart)
            if device <= question.device_bytes:
                host = min(footprint.host(each, prompts_on_host=False).total for each in apart)
                return count if host <= question.host_bytes else None
        return None

    def _least_more(
        self, busy_of: Callable[[BlockCandidate], Busy], away: Sequence[BlockCandidate]
    ) -> list[float]:
        """What a lent layer asks of each resource more, or less, than one that comes: of the kinds
        of KV, the least.
        """
        more: list[tuple[float, ...]] = []
        for each in away:
            one, none = (self._resources(busy_of(c)) for c in (replace(each, lent=1), each))
            more.append(tuple(a - b for a, b in zip(one, none, strict=True)))
        return [min(found) for found in zip(*more, strict=True)]

    def _away(self, kind: BlockCandidate, *, mlps: bool) -> BlockCandidate:
        """With all layers, or their MLPs, streamed."""
        return replace(kind, streamed=self._layers, mlps=mlps)

    def _lacks(self, kinds: tuple[BlockCandidate, ...]) -> bool:
        """Whether layers may be read from disk, and host memory may be too small without."""
        question, footprint = self._q, self._times.footprint
        away = (replace(kind, streamed=self._layers) for kind in kinds)
        return footprint.reads and any(
            footprint.host(kind, prompts_on_host=False).total > question.host_bytes for kind in away
        )

    def _lent_s(self, away: BlockCandidate, *, reads: bool) -> float:
        """What a layer, or an MLP, that the CPU computes while others come adds to the link's time
        in a pass: its own that it saves, and what the link stands still while it is computed.
        """
        bound = self._times.bound
        computed_s, brought_s = bound.lent_s(away)
        comes_s = bound.layer_s(away) if reads else brought_s
        return max(0.0, computed_s - STREAM_SLOTS * comes_s) - brought_s

    def _kept(self, kind: BlockCandidate) -> float:
        """Share of the layers that need no loads: as many as there are slots stay there. They take
        less memory than resident ones only if these are not in few bits.
        """
        return stream_slots(self._layers) / self._layers if kind.quantized == "streamed" else 0.0

    @property
    def _stay_beside_one(self) -> int:
        """Of all layers but one that is left to the CPU, those that then stay in their slots."""
        others = self._layers - 1
        return others if others <= stream_slots(others) else 0

    def _resources(self, busy: Busy) -> tuple[float, ...]:
        return (*busy.by_queue, busy.link_s, busy.dram_bytes / self._dram_bytes_per_s)

    def _memory(
        self,
        programme: Programme,
        weights_columns: tuple[int, int],
        shares: list[int],
        kinds: tuple[BlockCandidate, ...],
        away: BlockCandidate,
        *,
        slots: bool,
        reads: bool,
    ) -> None:
        """Of both memories, in gigabytes.

        Args:
            weights_columns: shares of layers that are streamed, and of those that are read before.
            away: the first kind, with all layers streamed.
            slots: streamed layers' are there, however few pass through them. reads: so are those of
                host memory.
        """
        streamed, read = weights_columns
        footprint, question = self._times.footprint, self._q
        for size_of, prompts_on_host, capacity in (
            (footprint.device, True, question.device_bytes),
            (footprint.host, False, question.host_bytes),
        ):
            sums = [size_of(kind, prompts_on_host=prompts_on_host) for kind in kinds]
            weights = size_of(away, prompts_on_host=prompts_on_host).weights - sums[0].weights
            fixed = 0.0
            if slots and size_of == footprint.device:
                count = stream_slots(self._layers)
                fixed = -weights * count / (self._layers - count)
                weights -= fixed
            entries: Entries = [(streamed, weights / 1e9)]
            if reads and away.mlps and size_of == footprint.device:
                # of layers that are read nothing stays, and slots are as large as they
                stays = footprint.attention_bytes(away.quantized)
                entries += [(read, -self._layers * stays / 1e9)]
                fixed += stream_slots(self._layers) * stays
            if reads and size_of == footprint.host:
                entries += [(read, -weights / 1e9)]
                all_read = size_of(replace(away, on_disk=self._layers), prompts_on_host=False)
                fixed = all_read.weights
            entries += [(s, each.total / 1e9) for s, each in zip(shares, sums, strict=True)]
            programme.at_most(entries, (capacity - fixed) / 1e9)
