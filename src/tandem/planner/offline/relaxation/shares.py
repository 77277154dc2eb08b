"""The linear programme of one way to run a block: the least time over shares of layers and KV.

A pass takes at least what each resource takes for all of its work, and what waits for each other
where the CPU attends. While the CPU computes a layer or an MLP for all batches, no more of the
others come than there are slots, since none of them is done with before. Else nothing waits. Costs
and sizes are those of the planner's own candidates, between which they are convex.

Where the CPU computes layers, KV costs different things in theirs and in the accelerator's (what is
attended on the CPU crosses the link for these only), so that each kind of KV has a share of either.
Where it computes columns of MLPs, nothing waits for whole ones: these may be its in any number.
Every column is a share and at least 0; every second of a resource in a pass is such a share times
what all of it would take, which is at least 0 as well and no more on a faster machine; and which
shares there are depends on memories' sizes alone, of which larger ones allow for more. So no
machine with more of anything has a longer least time. Columns on the CPU spare seconds, which are
taken off those of layers that have them anyway: then it is so, too. Where attention's maps are the
CPU's, seconds of one kind of KV are taken off all kinds, and it has only been tried (ADR 0079).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tandem.plan.weights import STREAM_SLOTS, stream_slots
from tandem.planner.offline.bound import BlockBound, Busy
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.relaxation.divided_layers import DividedLayers
from tandem.planner.offline.relaxation.kv_kinds import KvKinds
from tandem.planner.offline.relaxation.layers_away import LayersAway, Resources
from tandem.planner.offline.relaxation.memory import limit_memory
from tandem.planner.offline.relaxation.way import BlockWay
from tandem.planner.offline.relaxation.whole_layers import WholeLayers
from tandem.planner.offline.times import BlockTimes
from tandem.planner.relaxation.programme import Entries, Programme
from tandem.planner.relaxation.solver import Solver


@dataclass(frozen=True, slots=True)
class BlockShares:
    """The least time of a block, and the shares that reach it.

    Attributes:
        lent, read, streamed: of the layers. resident, crossing, cpu, recomputed: of the sequences.
        columns: of all layers' MLPs.
    """

    block_s: float
    lent: float
    read: float
    streamed: float
    resident: float
    crossing: float
    cpu: float
    recomputed: float = 0.0
    columns: float = 0.0


@dataclass(frozen=True, slots=True)
class Columns:
    """Of one programme: the time of the pass over prompts, and of one over tokens; shares of
    layers; and shares of sequences times layers.

    Attributes:
        first, comes: of the layers, those that come in the one and in the other.
        kinds, apart: sequences by the kinds of KV, in most layers, and in those that differ, if
            any do.
        cpu_columns: of all layers' MLPs, columns of streamed ones that are the CPU's.
    """

    prefill: int
    decode: int
    read: int
    streamed: int
    first: int
    comes: int
    kinds: tuple[int, ...]
    apart: tuple[int, ...]
    cpu_columns: int


def least_shares(
    times: BlockTimes,
    solver: Solver,
    bound: BlockBound,
    kinds: KvKinds,
    held: KvKinds,
    way: BlockWay,
    within: WholeLayers | None = None,
) -> BlockShares | None:
    """At most the time of any block that is run this way; None if none fits.

    Args:
        bound: of as many sequences as there are in the mean.
        held: the same kinds with as many sequences as memory must have room for.
        within: numbers of layers; None: any share.
    """
    away = LayersAway(times, bound, kinds, way)
    apart = away.least_apart(held)
    if apart is None:
        return None
    return _Relaxed(times, bound, kinds, held, away).solve(solver, apart, within)


class _Relaxed:
    """One programme. Times are counted in those of the block whose KV is all on the accelerator, so
    that columns are about 1.
    """

    def __init__(
        self,
        times: BlockTimes,
        bound: BlockBound,
        kinds: KvKinds,
        held: KvKinds,
        away: LayersAway,
    ) -> None:
        self._bound = bound
        self._times, self._kinds, self._held, self._away = times, kinds, held, away
        self._layers = times.question.model.num_layers
        self._stay = stream_slots(self._layers) / self._layers
        passes = max(0.0, times.question.lengths.generated_tokens - 1)
        self._prefill_s, self._decode_s = bound.prefill_s(kinds[0]), bound.decode_s(kinds[0])
        self._unit_s = self._prefill_s + passes * self._decode_s
        self._p = Programme()
        self._c = self._columns(away)

    def solve(self, solver: Solver, apart: int, within: WholeLayers | None) -> BlockShares | None:
        """Build the rows, and minimise.

        Args:
            apart: the fewest layers that are streamed where some are lent.
        """
        c = self._c
        self._work_of_prompts()
        if self._away.way.divides:
            self._divide(apart)
        else:
            self._work_of_tokens()
            self._wait()
        self._come()
        if self._away.way.lends_layers:
            self._lend(apart)
        if within is not None:
            self._limit([(c.streamed, 1.0)], within.streamed)
            self._limit([(share, 1.0) for share in self._lent], within.lent)
        self._p.at_most([(c.read, 1.0), (c.streamed, -1.0)], 0.0)
        each_kind = (*c.kinds, *c.apart)
        held = self._held * (len(each_kind) // len(c.kinds))
        limit_memory(self._p, self._times, self._away, held, (c.streamed, c.read, each_kind))
        found = solver.minimise(self._p)
        return None if found is None else self._shares(found.value, found.columns)

    def _columns(self, away: LayersAway) -> Columns:
        column, way = self._p.column, away.way
        of_prompts = self._prefill_s / self._unit_s
        found = Columns(
            prefill=column(of_prompts),
            decode=column(1.0 - of_prompts),
            read=column(upper=1.0 if way.reads else 0.0),
            streamed=column(upper=0.0 if way.streams is False else 1.0),
            first=column(),
            comes=column(),
            kinds=tuple(column() for _ in self._kinds),
            apart=tuple(column() for _ in self._kinds if away.differ),
            cpu_columns=column(),
        )
        self._p.equal([(share, 1.0) for share in (*found.kinds, *found.apart)], 1.0)
        return found

    @property
    def _lent(self) -> tuple[int, ...]:
        """Sequences in layers that the CPU computes; of a kind, all of those that differ."""
        return self._c.apart if self._away.way.lends_layers else ()

    def _work_of_prompts(self) -> None:
        """Each resource's in the pass over prompts, in which all that is streamed comes."""
        away, busy_of, c = self._away, self._bound.prefill_busy, self._c
        of_kinds = [away.resources(busy_of(kind)) for kind in self._kinds]
        shares: list[tuple[int, Resources]] = [
            (c.first, away.loads(busy_of)),
            (c.read, away.reads(busy_of)),
            *zip(c.kinds, of_kinds, strict=True),
        ]
        if self._away.way.lends_layers:  # the accelerator computes these, too
            shares += zip(c.apart, of_kinds, strict=True)
        elif c.apart:
            shares += self._apart(busy_of)
        self._work(c.prefill, shares)

    def _work_of_tokens(self) -> None:
        """Each resource's in a pass over tokens."""
        away, busy_of, c = self._away, self._bound.decode_busy, self._c
        shares: list[tuple[int, Resources]] = [
            (c.comes, away.loads(busy_of)),
            *zip(c.kinds, (away.resources(busy_of(kind)) for kind in self._kinds), strict=True),
        ]
        if away.way.lends != "all":  # else those that are read stay in the slots, too
            shares.append((c.read, away.reads(busy_of)))
        if c.apart:
            shares += self._apart(busy_of)
        self._work(c.decode, shares)

    def _apart(self, busy_of: Callable[[BlockCandidate], Busy]) -> Iterator[tuple[int, Resources]]:
        """With KV of each kind, in layers that differ."""
        for share, kind in zip(self._c.apart, self._kinds, strict=True):
            yield share, self._away.apart(busy_of, kind)

    def _work(self, time: int, shares: Sequence[tuple[int, Resources]]) -> None:
        """A pass takes no less than what each resource does for all shares."""
        columns = [column for column, _ in shares]
        for seconds in zip(*(each for _, each in shares), strict=True):
            if any(seconds):
                self._at_least(time, zip(columns, seconds, strict=True))

    def _come(self) -> None:
        """What is streamed comes, but for what stays in the slots, and for what is lent."""
        c, away = self._c, self._away
        self._p.at_most([(c.streamed, 1.0), (c.first, -1.0)], away.kept)
        if away.way.lends != "all":
            less = [(share, -1.0) for share in self._lent]
            self._p.at_most([(c.streamed, 1.0), (c.comes, -1.0), *less], away.kept)
        if c.apart and not self._lent:
            few = [(share, 1.0) for share in c.apart]
            self._p.equal([(c.streamed, -1.0), *few], 0.0)

    def _wait(self) -> None:
        """What waits for each other in the layers."""
        c, of_kinds = self._c, [self._bound.decode_busy(kind).way_s for kind in self._kinds]
        ways = list(zip(c.kinds, of_kinds, strict=True))
        if c.apart:
            ways += zip(c.apart, map(self._away.apart_way_s, self._kinds), strict=True)
        self._at_least(c.decode, ways)

    def _divide(self, apart: int) -> None:
        """Each resource's work in a pass in which columns of all streamed MLPs are the CPU's, and
        what waits for each other.
        """
        c, divided = self._c, DividedLayers(self._times, self._bound, self._kinds, self._away)
        parted = self._parted()
        self._p.at_most([(c.cpu_columns, 1.0), (parted, -1.0)], 0.0)
        self._p.at_most([(c.streamed, -1.0)], -apart / self._layers)
        busy_of, away = self._bound.decode_busy, self._away
        for each in divided.work(away.loads(busy_of), away.reads(busy_of)):
            of_kinds = zip(c.kinds, each.kinds, strict=True)
            of_layers = [(c.streamed, each.streamed + each.divided)]
            if parted != c.streamed:
                of_layers = [(c.streamed, each.streamed), (c.read, each.reads)]
                of_layers += [(parted, each.divided)]
            self._at_least(c.decode, (*of_kinds, *of_layers, (c.cpu_columns, each.cpu)))
        ways = list(zip(c.kinds, map(divided.way_s, self._kinds), strict=True))
        self._at_least(c.decode, (*ways, (c.cpu_columns, divided.columns_way_s())))

    def _parted(self) -> int:
        """The share of layers that are divided: all that is streamed but what is read from disk."""
        c = self._c
        if not self._away.way.reads:
            return c.streamed
        parted = self._p.column()
        self._p.equal([(parted, 1.0), (c.read, 1.0), (c.streamed, -1.0)], 0.0)
        return parted

    def _lend(self, apart: int) -> None:
        """How many layers may be the CPU's, and what then waits for it."""
        c, reads = self._c, self._away.way.reads
        lent = [(share, 1.0) for share in self._lent]
        self._p.at_most([(c.streamed, -1.0)], -apart / self._layers)
        self._p.at_most([*lent, (c.streamed, -1.0)], -self._stay)
        if self._away.way.lends == "all":
            self._p.at_most(
                [*((share, -1.0) for share in self._lent), (c.streamed, 1.0)], self._stay
            )
        else:
            self._come_between()
        if reads:  # none of which is lent
            self._p.at_most([*lent, (c.read, 1.0), (c.streamed, -1.0)], 0.0)

    def _limit(self, share: Entries, layers: tuple[int, int]) -> None:
        """To so many layers at least, and at most."""
        if not share:
            return
        least, most = layers
        self._p.at_most(share, most / self._layers)
        self._p.at_most([(column, -entry) for column, entry in share], -least / self._layers)

    def _come_between(self) -> None:
        """While the CPU computes a layer, no more come than there are slots; the rest comes before
        or after.
        """
        c, (computed_s, brought_s) = self._c, self._away.one_lent_s()
        rest = self._p.column()
        slots = [(share, -float(STREAM_SLOTS)) for share in self._lent]
        self._p.at_most([(c.comes, 1.0), (rest, -1.0), *slots], 0.0)
        lent_s = self._layers * computed_s
        waits = [(rest, self._layers * brought_s), *((share, lent_s) for share in self._lent)]
        self._at_least(c.decode, waits)

    def _at_least(self, time: int, shares: Iterable[tuple[int, float]]) -> None:
        """A pass takes no less than so many seconds of each."""
        unit_s = self._decode_s if time == self._c.decode else self._prefill_s
        entries = [(column, seconds / unit_s) for column, seconds in shares]
        self._p.at_most([(time, -1.0), *entries], 0.0)

    def _shares(self, value: float, columns: Sequence[float]) -> BlockShares:
        c = self._c
        kinds = [columns[share] for share in c.kinds]
        apart = [columns[share] for share in c.apart]
        if apart:
            kinds = [here + there for here, there in zip(kinds, apart, strict=True)]
        lent = sum(columns[share] for share in self._lent)
        found = BlockShares(
            value * self._unit_s, lent, columns[c.read], columns[c.streamed], *kinds
        )
        return replace(found, columns=columns[c.cpu_columns])
