"""The linear programme of one way to run a block: the least time over shares of layers and KV.

A pass takes at least what each resource takes for all of its work, and what waits for each other
where the CPU attends. While the CPU computes a layer or an MLP for all batches, no more of the
others come than there are slots, since none of them is done with before. Else nothing waits. Costs
and sizes are those of the planner's own candidates, between which they are convex.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tandem.plan.weights import stream_slots
from tandem.planner.offline.bound import Busy
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.relaxation.kv_kinds import KvKinds
from tandem.planner.offline.relaxation.layers_away import LayersAway, Resources
from tandem.planner.offline.relaxation.mean_rows import MeanRows
from tandem.planner.offline.relaxation.memory import limit_memory
from tandem.planner.offline.relaxation.way import BlockWay
from tandem.planner.offline.times import BlockTimes
from tandem.planner.relaxation.programme import Entries, Programme, Solver


@dataclass(frozen=True, slots=True)
class BlockShares:
    """The least time of a block, and the shares that reach it.

    Attributes:
        lent, read, streamed: of the layers. resident, crossing, cpu, recomputed: of the sequences.
    """

    block_s: float
    lent: float
    read: float
    streamed: float
    resident: float
    crossing: float
    cpu: float
    recomputed: float = 0.0


@dataclass(frozen=True, slots=True)
class Columns:
    """Of one programme: the time of the pass over prompts, and of one over tokens; shares of
    layers; and shares of sequences, by the kinds of KV.
    """

    prefill: int
    decode: int
    lent: int
    read: int
    streamed: int
    kinds: tuple[int, ...]


def least_shares(
    times: BlockTimes,
    solver: Solver,
    bound: MeanRows,
    kinds: KvKinds,
    held: KvKinds,
    way: BlockWay,
) -> BlockShares | None:
    """At most the time of any block that is run this way; None if none fits.

    Args:
        bound: of as many sequences as there are in the mean.
        held: the same kinds with as many sequences as memory must have room for.
    """
    away = LayersAway(times, bound, kinds, way)
    apart = away.least_apart(held)
    if apart is None:
        return None
    return _Relaxed(times, bound, kinds, held, away).solve(solver, apart)


class _Relaxed:
    """One programme. Time is counted in `_unit_s`, so that columns are about 1."""

    def __init__(
        self,
        times: BlockTimes,
        bound: MeanRows,
        kinds: KvKinds,
        held: KvKinds,
        away: LayersAway,
    ) -> None:
        self._bound = bound
        self._times, self._kinds, self._held, self._away = times, kinds, held, away
        self._layers = times.question.model.num_layers
        self._stay = stream_slots(self._layers) / self._layers
        self._unit_s = bound.decode_s(kinds[0])
        self._p = Programme()
        self._c = self._columns(away.way)

    def solve(self, solver: Solver, apart: int) -> BlockShares | None:
        """Build the rows, and minimise.

        Args:
            apart: the fewest layers that are streamed where some are lent.
        """
        bound = self._bound
        self._work(self._c.prefill, bound.prefill_busy)
        self._work(self._c.decode, bound.decode_busy)
        if self._away.way.lends != "none":
            self._lend(apart)
        self._p.at_most([(self._c.decode, -1.0), *self._chain()], 0.0)
        self._p.at_most([(self._c.read, 1.0), (self._c.streamed, -1.0)], 0.0)
        columns = self._c.streamed, self._c.read, self._c.kinds
        limit_memory(self._p, self._times, self._away, self._held, columns)
        found = solver.minimise(self._p)
        if found is None:
            return None
        return BlockShares(found.value * self._unit_s, *found.columns[self._c.lent :])

    def _columns(self, way: BlockWay) -> Columns:
        column = self._p.column
        passes = max(0.0, self._times.question.lengths.generated_tokens - 1)
        found = Columns(
            prefill=column(1.0),
            decode=column(passes),
            lent=column(upper=0.0 if way.lends == "none" else 1.0),
            read=column(upper=1.0 if way.reads else 0.0),
            streamed=column(upper=0.0 if way.streams is False else 1.0),
            kinds=tuple(column() for _ in self._kinds),
        )
        self._p.equal([(share, 1.0) for share in found.kinds], 1.0)
        return found

    def _work(self, time: int, busy_of: Callable[[BlockCandidate], Busy]) -> None:
        """Each resource's, in a pass of that kind.

        Args:
            time: its column.
        """
        away, in_passes = self._away, time == self._c.decode
        of_kinds = [away.resources(busy_of(kind)) for kind in self._kinds]
        loads, reads, lent = away.loads(busy_of), away.reads(busy_of), away.lent(busy_of)
        if in_passes and away.way.lends == "all":
            reads = (0.0,) * len(reads)  # they stay in the slots, too
        for resource, each in enumerate(zip(*of_kinds, strict=True)):
            self._resource(time, each, loads[resource], reads[resource], lent[resource])

    def _resource(
        self, time: int, of_kinds: Resources, loads_s: float, reads_s: float, one_lent_s: float
    ) -> None:
        """One of them: with all KV in each way, for all loads, all reads, and a layer that is
        lent.
        """
        lent_s, kept = self._layers * one_lent_s, self._away.kept
        if time == self._c.decode and self._away.way.lends != "none":
            lent_s += self._away.stay_beside_one * loads_s
            kept = max(kept, self._stay if self._away.way.lends == "all" else 0.0)
        work: Entries = [
            (self._c.streamed, loads_s),
            (time, -self._unit_s),
            (self._c.read, reads_s),
            (self._c.lent, lent_s),
            *zip(self._c.kinds, of_kinds, strict=True),
        ]
        limit_s = kept * max(0.0, loads_s)
        self._p.at_most([(c, s / self._unit_s) for c, s in work], limit_s / self._unit_s)

    def _chain(self) -> Entries:
        """What waits for each other in the layers."""
        ways_s = [self._bound.way_s(kind) for kind in self._kinds]
        chain: Entries = [(c, s / self._unit_s) for c, s in zip(self._c.kinds, ways_s, strict=True)]
        if self._away.way.lends == "none":
            return chain
        return [*chain, (self._c.lent, self._layers * self._away.lent_way_s() / self._unit_s)]

    def _lend(self, apart: int) -> None:
        """How many layers may be the CPU's, and what then waits for it."""
        streamed, lent, read = self._c.streamed, self._c.lent, self._c.read
        self._p.at_most([(streamed, -1.0)], -apart / self._layers)
        self._p.at_most([(lent, 1.0), (streamed, -1.0)], -self._stay)
        if self._away.way.lends == "all":
            self._p.at_most([(lent, -1.0), (streamed, 1.0)], self._stay)
        else:
            comes_s, more_s = self._away.waits_s()
            waits: Entries = [
                (streamed, self._layers * comes_s / self._unit_s),
                (lent, self._layers * more_s / self._unit_s),
            ]
            self._p.at_most([(self._c.decode, -1.0), *waits], 0.0)
        if self._away.way.reads:  # none of which is lent
            self._p.at_most([(lent, 1.0), (read, 1.0), (streamed, -1.0)], 0.0)
