"""The linear programme of one way to run: the least time over shares of layers and of KV.

All layers are alike but for their windows. Of each window, layers may have any home in any share,
and of each, any share of the KV may lie on the host. Memory of both tiers holds what lies in it;
each kind of sweep takes at least the chain of its layers, and each resource's work at its full
rate.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from tandem.plan.weights import STREAM_SLOTS
from tandem.planner.relaxation.attention_shares import AttentionForms, Form, attention_forms
from tandem.planner.relaxation.bounded import Shares, Start
from tandem.planner.relaxation.fixed_costs import (
    LEFT_OUT,
    FixedCosts,
    carried_by,
    fixed_costs,
    least_slotted,
    most_sweep_s,
    room_bytes,
    sweep_tokens,
    token_weights,
)
from tandem.planner.relaxation.homes import EXPERTS_STREAMED, THROUGH_SLOTS, LayerHome
from tandem.planner.relaxation.layer_prices import LayerPrice
from tandem.planner.relaxation.loads import (
    Loads,
    loads_of,
    streamed,
    waits_for_cpu,
    while_read_s,
)
from tandem.planner.relaxation.prices import Prices
from tandem.planner.relaxation.programme import Optimum
from tandem.planner.relaxation.rows import Rows
from tandem.planner.relaxation.sweep_kinds import SweepKind
from tandem.planner.relaxation.way import Way


def least_shares(prices: Prices, way: Way, rows: Rows, start: Start | None = None) -> Shares | None:
    """At most the time of any placement with any number of rows in the ranges; None if none fits,
    or keeps the bound on time per token.

    Args:
        start: of a range near by; it decides which shares are found, if several take as long.
    """
    every = (_Relaxation(prices, way, rows, kinds) for kinds in prices.kinds(way, rows))
    found = (relaxation.solve(start) for relaxation in every)
    return min(filter(None, found), key=lambda shares: shares.token_s, default=None)


class _Relaxation:
    """One programme. Time is counted in `_unit_s`, so that columns are about 1."""

    def __init__(self, prices: Prices, way: Way, rows: Rows, kinds: Sequence[SweepKind]) -> None:
        self._prices, self._way, self._rows, self._kinds = prices, way, rows, kinds
        resident = prices.layer.of("resident", sweep_tokens(prices, rows, self._kinds[-1]))
        self._unit_s = prices.question.model.num_layers * resident.chain_s
        shares = prices.shares(way)
        self._p = shares.programme()
        self._homes, self._hosted, self._parts = shares.homes, shares.hosted, shares.parts

    def solve(self, start: Start | None) -> Shares | None:
        """Build the rows, and minimise."""
        self._memory()
        least = least_slotted(self._prices, self._way)
        if least:
            slotted = [column for home, column in self._homes.items() if home in THROUGH_SLOTS]
            self._p.at_most([(column, -1.0) for column in slotted], LEFT_OUT - least)
        times = [self._time(kind) for kind in self._kinds]
        self._objective(times)
        self._keep_bound(times)
        begin = start.basis if start is not None and start.size == self._p.size else None
        found = self._prices.solver.minimise(self._p, begin)
        return None if found is None else self._shares(found)

    def _shares(self, found: Optimum) -> Shares:
        hosted = 0.0 if self._hosted is None else found.columns[self._hosted]
        layers: dict[LayerHome, float] = {
            home: found.columns[column] for home, column in self._homes.items()
        }
        start = Start(self._p.size, found.basis)
        return Shares(found.value * self._unit_s, layers, hosted, start)

    # --- memory -----------------------------------------------------------------------------------

    def _memory(self) -> None:
        prices, way = self._prices, self._way
        on_device, on_host = room_bytes(prices, way, self._rows)
        row_bytes = prices.row_bytes * self._rows.through.least
        hosted: Form = [] if self._hosted is None else [(self._hosted, row_bytes)]
        embedding_bytes = prices.footprint.embedding_bytes
        if embedding_bytes:
            looked_up = self._p.column(upper=1.0)
            hosted.append((looked_up, float(embedding_bytes)))
        self._p.at_most(
            [
                *self._layer_form(prices.layer.device_bytes),
                *self._shared_slots(),
                *((c, -f) for c, f in hosted),
            ],
            on_device,
        )
        self._p.at_most(
            [*self._layer_form(prices.layer.host_bytes), *hosted],
            on_host,
        )

    def _shared_slots(self) -> Form:
        """Slots for what is left of two mixtures: of all, as much is."""
        each = STREAM_SLOTS * self._prices.footprint.experts_bytes
        share = each / self._prices.question.movable_layers
        return [(column, share) for home, column in self._homes.items() if home in EXPERTS_STREAMED]

    def _layer_form(self, value: Callable[[LayerHome], float]) -> Form:
        return [(column, float(value(home))) for home, column in self._homes.items()]

    # --- time -------------------------------------------------------------------------------------

    def _time(self, kind: SweepKind) -> int:
        """The column of one kind's time."""
        prices, tokens = self._prices, sweep_tokens(self._prices, self._rows, kind)
        fixed = fixed_costs(prices, self._way, self._rows, kind)
        time = self._p.column()
        layer: dict[LayerHome, LayerPrice] = {
            home: prices.layer.of(_used(home, kind), max(1, tokens)) for home in self._homes
        }
        attention: list[AttentionForms] = []
        if fixed.alone_s is not None:
            self._at_least(time, [], max(fixed.alone_s, fixed.cpu_s))
        else:
            carried = carried_by(prices, self._way, self._rows, kind)
            attention = [
                attention_forms(self._p, part, carried, self._unit_s) for part in self._parts
            ]
            self._chain(time, layer, attention, fixed)
        loads = loads_of(prices, layer, kind.prompt_tokens)
        link_s = self._per_layer([_times(price, loads).link_s for price in layer.values()])
        self._at_least(time, link_s, -loads.spared_s)
        self._at_least(time, self._per_layer([price.disk_s for price in layer.values()]), 0.0)
        self._moved(time, layer, loads, attention, fixed)
        return time

    def _chain(
        self,
        time: int,
        layer: Mapping[LayerHome, LayerPrice],
        attention: Sequence[AttentionForms],
        fixed: FixedCosts,
    ) -> None:
        """One layer after the other, and all that the CPU does."""
        layers = layer.values()
        chain = [entry for forms in attention for entry in forms.chain]
        stages = self._per_layer([price.chain_s for price in layers])
        self._at_least(time, [*chain, *stages], fixed.around_s)
        if self._way.shares_mixtures:
            there = self._per_layer([price.chain_s + price.longer_there_s for price in layers])
            self._at_least(time, [*chain, *there], fixed.around_s)
        if fixed.beside_s is not None:
            self._at_least(time, stages, fixed.around_s + fixed.beside_s)
        cpu = [entry for forms in attention for entry in forms.cpu]
        cpu += self._per_layer([price.cpu_s for price in layers])
        self._at_least(time, cpu, fixed.cpu_s)

    def _moved(
        self,
        time: int,
        layer: Mapping[LayerHome, LayerPrice],
        loads: Loads,
        attention: Sequence[AttentionForms],
        fixed: FixedCosts,
    ) -> None:
        """What the host's memory moves, at the rate that it has."""
        pool = self._prices.question.hardware.host.pool_bytes_per_s
        pool_s = pool * self._unit_s
        moved = [
            (c, size / pool_s)
            for forms in attention
            for c, size in (*forms.cpu_bytes, *forms.copied_bytes)
        ]
        every = [_times(price, loads).dram_bytes / pool for price in layer.values()]
        moved += self._per_layer(every)
        self._at_least(time, moved, (fixed.dram_bytes - loads.spared_bytes) / pool)
        if fixed.alone_s is not None or not waits_for_cpu(self._prices, self._way):
            return
        each_s, beside_s = while_read_s(pool, layer, loads, fixed.around_s)
        read = [(c, size / pool_s) for forms in attention for c, size in forms.cpu_bytes]
        self._at_least(time, [*read, *self._per_layer(each_s)], beside_s)

    def _per_layer(self, costs: Iterable[float]) -> Form:
        """By home."""
        pairs = zip(self._homes.values(), costs, strict=True)
        return [(column, cost / self._unit_s) for column, cost in pairs if cost]

    def _at_least(self, time: int, form: Form, fixed_s: float) -> None:
        """A time is at least this much."""
        if form or fixed_s:
            self._p.at_most([*form, (time, -1.0)], -fixed_s / self._unit_s)

    def _objective(self, times: Sequence[int]) -> None:
        """Time per output token, two ways, of which the longer counts."""
        token = self._p.column(cost=1.0)
        for weights in token_weights(self._prices, self._way, self._rows, self._kinds):
            self._p.at_most([*zip(times, weights, strict=True), (token, -1.0)], 0.0)

    def _keep_bound(self, times: Sequence[int]) -> None:
        """What a request sees per token."""
        most_s = most_sweep_s(self._prices, self._way)
        if most_s is None:
            return
        alone = self._prices.question.objective == "latency"
        seen = [
            (time, 1.0 if alone else kind.share)
            for time, kind in zip(times, self._kinds, strict=True)
            if kind.decodes
        ]
        self._p.at_most(seen, most_s / self._unit_s)


def _used(home: LayerHome, kind: SweepKind) -> LayerHome:
    """How a layer is used: lent ones are streamed where prompts are read."""
    if kind.prompt_tokens:
        return streamed(home)
    if home == "host":
        return "cpu"
    if home == "host-mlp":
        return "cpu-mlp"
    return "experts-cpu" if home == "experts-host" else home


def _times(price: LayerPrice, loads: Loads) -> LayerPrice:
    """With a layer's load as often as it counts."""
    if loads.times == 1:
        return price
    more = (loads.times - 1) * price.loaded_bytes
    return price._replace(link_s=loads.times * price.link_s, dram_bytes=price.dram_bytes + more)
