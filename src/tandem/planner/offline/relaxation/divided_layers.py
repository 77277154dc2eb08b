"""What MLPs ask for of which the CPU computes columns, as shares of all layers' MLPs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tandem.planner.offline.bound import Busy
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.relaxation.kv_kinds import KvKinds
from tandem.planner.offline.relaxation.layers_away import LayersAway, Resources
from tandem.planner.offline.relaxation.mean_rows import MeanRows
from tandem.planner.offline.times import BlockTimes


@dataclass(frozen=True, slots=True)
class DividedWork:
    """Of one resource, in a pass over tokens; none is below 0.

    Attributes:
        kinds: of each kind of KV, and all else that layers have anyway. comes: of layers that come,
            beside their columns. cpu: of columns that are the CPU's. others: of those of layers
            that come and are not; here: likewise, of all layers.
    """

    kinds: tuple[float, ...]
    comes: float
    cpu: float = 0.0
    others: float = 0.0
    here: float = 0.0


class DividedLayers:
    """Of one way to run a block. A resource's work in a pass is a straight line over the columns
    between candidates that have some; where none are, less is asked for than the line says.
    """

    def __init__(
        self, times: BlockTimes, bound: MeanRows, kinds: KvKinds, away: LayersAway
    ) -> None:
        self._bound, self._away, self._kinds = bound, away, kinds
        self._size = times.question.model.intermediate_size

    def work(self, loads: Resources) -> tuple[DividedWork, ...]:
        """Of each resource, where `loads` are those of all layers that come."""
        kinds = [self._away.resources(self._bound.decode_busy(kind)) for kind in self._kinds]
        of_each = zip(*kinds, strict=True), loads, self._dividing(), self._columns()
        return tuple(
            _work(of_kinds, load + begun, column)
            for of_kinds, load, begun, column in zip(*of_each, strict=True)
        )

    def _columns(self) -> Resources:
        """Of a pass, what it takes more if the CPU computes all columns of all layers: less than
        nothing of what that spares.
        """
        none, half = (self._resources(count) for count in self._counts)
        return tuple(
            (more - less) * self._size / (self._counts[1] - self._counts[0])
            for less, more in zip(none, half, strict=True)
        )

    def _dividing(self) -> Resources:
        """Of a pass, what it takes besides that all layers are divided."""
        plain = self._away.resources(self._busy(0))
        one, slope = self._resources(self._counts[0]), self._columns()
        begun = (
            each - s * self._counts[0] / self._size for each, s in zip(one, slope, strict=True)
        )
        return tuple(max(0.0, each - bare) for each, bare in zip(begun, plain, strict=True))

    def way_s(self, kind: BlockCandidate) -> float:
        """Of a pass, a batch's way through all layers, divided or not, with no column on the CPU:
        no more than it is.
        """
        busy_of = self._bound.decode_busy
        every = self._away.all_away(kind)
        ways = [busy_of(replace(every, columns=count)).way_s for count in self._counts]
        begun_s = ways[0] - (ways[1] - ways[0]) / (self._counts[1] / self._counts[0] - 1)
        return min(begun_s, busy_of(kind).way_s)

    def columns_way_s(self) -> float:
        """Likewise, what the way becomes longer by if all columns are the CPU's."""
        every, busy_of = self._away.all_away(self._kinds[0]), self._bound.decode_busy
        ways = [busy_of(replace(every, columns=count)).way_s for count in self._counts]
        return (ways[1] - ways[0]) * self._size / (self._counts[1] - self._counts[0])

    @property
    def _counts(self) -> Sequence[int]:
        return (1, max(2, self._size // 2))

    def _resources(self, columns: int) -> Resources:
        return self._away.resources(self._busy(columns))

    def _busy(self, columns: int) -> Busy:
        every = replace(self._away.all_away(self._kinds[0]), columns=columns)
        return self._bound.decode_busy(every)


def _work(kinds: tuple[float, ...], comes: float, column: float) -> DividedWork:
    """Where columns on the CPU spare a resource something, that is asked for by those that are not:
    of layers that come, or of all, if it is theirs however layers come by their weights.
    """
    if column >= 0:
        return DividedWork(kinds, comes, cpu=column)
    if comes + column >= 0:
        return DividedWork(kinds, comes + column, others=-column)
    return DividedWork(tuple(max(0.0, each + column) for each in kinds), comes, here=-column)
