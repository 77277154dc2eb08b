"""What layers ask for of whose MLPs the CPU computes columns, as shares of all layers' MLPs; where
it has attention's maps of the same layers, too, of these.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tandem.planner.offline.bound import BlockBound, Busy
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.relaxation.kv_kinds import KvKinds
from tandem.planner.offline.relaxation.layers_away import LayersAway, Resources
from tandem.planner.offline.times import BlockTimes


@dataclass(frozen=True, slots=True)
class DividedWork:
    """Of one resource, in a pass over tokens.

    Attributes:
        kinds: of each kind of KV, and all else that layers have anyway; none is below 0.
        streamed: of layers that come, beside; reads: of those that come from disk, beside that.
        divided: of layers that are divided; below 0 where these spare more than they ask for.
        cpu: of columns that are the CPU's, more than if they were not.
    """

    kinds: tuple[float, ...]
    streamed: float
    reads: float
    divided: float
    cpu: float


class DividedLayers:
    """Of one way to run a block. A resource's work in a pass is a straight line over the columns
    between candidates that have some; where none are, less is asked for than the line says.
    """

    def __init__(
        self, times: BlockTimes, bound: BlockBound, kinds: KvKinds, away: LayersAway
    ) -> None:
        self._bound, self._away, self._kinds = bound, away, kinds
        self._size = times.question.model.intermediate_size
        self._maps = away.way.lends == "maps"

    def work(self, loads: Resources, reads: Resources) -> Iterator[DividedWork]:
        """Of each resource, where these are loads of all layers that come, and what is more if all
        are read from disk.
        """
        busy_of = self._bound.decode_busy
        kinds = [self._away.resources(busy_of(kind)) for kind in self._kinds]
        of_layers = loads, reads, self._first(), self._columns()
        for of_kinds, *each in zip(zip(*kinds, strict=True), *of_layers, strict=True):
            yield DividedWork(of_kinds, *each)

    def _first(self) -> Resources:
        """What layers ask for beside their loads because they are divided. Where attention's maps
        are the CPU's, that depends on where KV lies, which of these layers' is open: what the CPU
        attends to no longer comes down, and what the accelerator does goes up. So it is the least
        of any kind.
        """
        if self._maps:
            return tuple(map(min, *(self._begun(kind) for kind in self._kinds)))
        return tuple(max(0.0, each) for each in self._begun(self._kinds[0]))

    def _columns(self) -> Resources:
        """Of a pass, what it takes more if the CPU computes all columns of all layers: less than
        nothing of what that spares.
        """
        none, half = (self._resources(count) for count in self._counts)
        return tuple(
            (more - less) * self._size / (self._counts[1] - self._counts[0])
            for less, more in zip(none, half, strict=True)
        )

    def _begun(self, kind: BlockCandidate) -> Resources:
        """Of a pass with all KV of a kind, what it takes besides that all layers are divided; where
        attention's maps are the CPU's, others do less.
        """
        every = self._away.all_away(kind)
        plain = self._away.resources(self._bound.decode_busy(every))
        one = self._away.resources(self._bound.decode_busy(self._divided(kind, self._counts[0])))
        part = self._counts[0] / self._size
        each = zip(one, self._columns(), plain, strict=True)
        return tuple(some - slope * part - bare for some, slope, bare in each)

    def way_s(self, kind: BlockCandidate) -> float:
        """Of a pass, a batch's way through all layers, divided or not, with no column on the CPU:
        no more than it is.
        """
        busy_of = self._bound.decode_busy
        ways = [busy_of(self._divided(kind, count)).way_s for count in self._counts]
        begun_s = ways[0] - (ways[1] - ways[0]) / (self._counts[1] / self._counts[0] - 1)
        return min(begun_s, busy_of(kind).way_s)

    def columns_way_s(self) -> float:
        """Likewise, what the way becomes longer by if all columns are the CPU's."""
        ways = [self._busy(count).way_s for count in self._counts]
        return (ways[1] - ways[0]) * self._size / (self._counts[1] - self._counts[0])

    @property
    def _counts(self) -> Sequence[int]:
        return (1, max(2, self._size // 2))

    def _resources(self, columns: int) -> Resources:
        return self._away.resources(self._busy(columns))

    def _busy(self, columns: int) -> Busy:
        return self._bound.decode_busy(self._divided(self._kinds[0], columns))

    def _divided(self, kind: BlockCandidate, columns: int) -> BlockCandidate:
        every = self._away.all_away(kind)
        return replace(every, columns=columns, attention_maps=self._maps)
