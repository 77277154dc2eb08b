"""The columns of one way to run, and the rows that make shares of them: alike whatever the rows
that it serves.
"""

from collections.abc import Mapping

from tandem.plan.weights import ON_CPU
from tandem.planner.relaxation.attention_prices import AttentionPrices
from tandem.planner.relaxation.attention_shares import Part, Place
from tandem.planner.relaxation.homes import LayerHome
from tandem.planner.relaxation.programme import Programme
from tandem.planner.relaxation.way import Way


class WayShares:
    """Columns for layers by home, and by window and place; and for KV on the host.

    Args:
        layers_of: number of layers by window. attention: what theirs costs.
        dense: layers without experts in a model with some, which are the accelerator's.

    Attributes:
        homes: column by home. hosted: share of the rows' KV on the host; None: there is no choice.
        parts: the layers of each window by the place that computes them.
    """

    def __init__(
        self,
        way: Way,
        layers_of: Mapping[int, int],
        attention: Mapping[int, AttentionPrices],
        dense: int,
    ) -> None:
        self._p, self._way, self._layers_of, self._dense = Programme(), way, layers_of, dense
        self.homes: dict[LayerHome, int] = {home: self._p.column() for home in way.homes}
        self.hosted = self._hosted_column()
        self.parts = self._divide(attention)

    def programme(self) -> Programme:
        """A new one that begins with these."""
        return self._p.copy()

    def _hosted_column(self) -> int | None:
        if not self._way.splits_kv:
            return None
        column = self._p.column(upper=1.0)
        if self._way.all_on_host:
            self._p.equal([(column, 1.0)], 1.0)
        return column

    def _divide(self, attention: Mapping[int, AttentionPrices]) -> list[Part]:
        all_places: tuple[Place, ...] = ("accelerator", "cpu", "lent")
        used = {_place(home) for home in self.homes}
        places: list[Place] = [place for place in all_places if place in used]
        parts: list[Part] = []
        for window in self._layers_of:
            for place in places:
                layers = self._p.column()
                hosted = None if self.hosted is None else self._p.column()
                if hosted is not None:
                    self._p.at_most([(hosted, 1.0), (layers, -1.0)], 0.0)
                parts.append(Part(attention[window], layers, hosted, place))
        self._share_out(parts)
        return parts

    def _share_out(self, parts: list[Part]) -> None:
        """Shares sum to one: of each window, of each place, and of the KV."""
        per_window = len(parts) // len(self._layers_of)
        for index, count in enumerate(self._layers_of.values()):
            group = parts[index * per_window : (index + 1) * per_window]
            self._p.equal([(part.layers, 1.0) for part in group], count)
            if self.hosted is not None:
                shares = [(part.hosted, 1.0) for part in group if part.hosted is not None]
                self._p.equal([*shares, (self.hosted, -count)], 0.0)
        for place in dict.fromkeys(part.place for part in parts):
            homes = [(c, 1.0) for home, c in self.homes.items() if _place(home) == place]
            group = [(part.layers, -1.0) for part in parts if part.place == place]
            fixed = self._dense if place == "accelerator" else 0
            self._p.equal([*homes, *group], -float(fixed))


def _place(home: LayerHome) -> Place:
    if home == "host":
        return "lent"
    return "cpu" if home in ON_CPU else "accelerator"
