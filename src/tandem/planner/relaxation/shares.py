"""The linear programme of one way to run: the least time over shares of layers and of KV.

All layers are alike but for their windows. Of each window, layers may have any home in any share,
and of each, any share of the KV may lie on the host. Memory of both tiers holds what lies in it;
each kind of sweep takes at least the chain of its layers, and each resource's work at its full
rate.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tandem.plan.weights import ON_CPU, STREAM_SLOTS
from tandem.planner.candidate import candidate_of
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.relaxation.attention_shares import (
    AttentionForms,
    Carried,
    Form,
    Part,
    Place,
    attention_forms,
)
from tandem.planner.relaxation.homes import EXPERTS_STREAMED, THROUGH_SLOTS, LayerHome
from tandem.planner.relaxation.layer_prices import LayerPrice
from tandem.planner.relaxation.prices import Prices
from tandem.planner.relaxation.programme import Optimum, Programme
from tandem.planner.relaxation.rows import Rows
from tandem.planner.relaxation.sweep_kinds import SweepKind
from tandem.planner.relaxation.way import Way

_ROUNDED_UP = 1 + 1e-9
_LENT: frozenset[LayerHome] = frozenset(("host", "host-mlp", "experts-host"))
_LEFT_OUT = 1e-9  # of a layer, where a number of them is asked for


@dataclass(frozen=True, slots=True)
class Shares:
    """The optimum for some rows.

    Attributes:
        token_s: per output token, of all requests; alone, of the request's.
        layers: how many have which home.
        hosted: share of the KV that lies on the host, of rows that take part in all layers.
    """

    token_s: float
    layers: Mapping[LayerHome, float]
    hosted: float


def least_shares(prices: Prices, way: Way, rows: Rows) -> Shares | None:
    """At most the time of any placement with any number of rows in the ranges; None if none fits,
    or keeps the bound on time per token.
    """
    found = (_Relaxation(prices, way, rows, kinds).solve() for kinds in prices.kinds(way, rows))
    return min(filter(None, found), key=lambda shares: shares.token_s, default=None)


class _Relaxation:
    """One programme. Time is counted in `_unit_s`, so that columns are about 1."""

    def __init__(self, prices: Prices, way: Way, rows: Rows, kinds: Sequence[SweepKind]) -> None:
        self._prices, self._way, self._rows, self._kinds = prices, way, rows, kinds
        self._through, self._cohort = rows.through.least, rows.cohort.least
        self._p = Programme()
        self._num_layers = prices.question.model.num_layers
        resident = prices.layer.of("resident", self._tokens(self._kinds[-1]))
        self._unit_s = self._num_layers * resident.chain_s
        self._homes: dict[LayerHome, int] = {home: self._p.column() for home in way.homes}
        self._hosted = self._hosted_column()
        self._parts = self._divide()

    def solve(self) -> Shares | None:
        """Build the rows, and minimise."""
        self._memory()
        if self._way.streams and not self._way.shares_mixtures:
            slotted = [column for home, column in self._homes.items() if home in THROUGH_SLOTS]
            least = STREAM_SLOTS + 1 - _LEFT_OUT
            if self._way.all_streamed:
                movable = self._prices.question.movable_layers
                least = max(least, movable - _LEFT_OUT)
            self._p.at_most([(column, -1.0) for column in slotted], -least)
        times = [self._time(kind) for kind in self._kinds]
        self._objective(times)
        self._keep_bound(times)
        found = self._prices.solver.minimise(self._p)
        return None if found is None else self._shares(found)

    def _shares(self, found: Optimum) -> Shares:
        hosted = 0.0 if self._hosted is None else found.columns[self._hosted]
        layers: dict[LayerHome, float] = {
            home: found.columns[column] for home, column in self._homes.items()
        }
        return Shares(found.value * self._unit_s, layers, hosted)

    # --- shares -----------------------------------------------------------------------------------

    def _hosted_column(self) -> int | None:
        """Share of the rows' KV on the host, where there is a choice."""
        if self._way.strategy != "ride-along":
            return None
        column = self._p.column(upper=1.0)
        if self._way.all_on_host:
            self._p.equal([(column, 1.0)], 1.0)
        return column

    def _divide(self) -> list[Part]:
        """The layers of each window by the place that computes them."""
        all_places: tuple[Place, ...] = ("accelerator", "cpu", "lent")
        used = {_place(home) for home in self._homes}
        places: list[Place] = [place for place in all_places if place in used]
        parts: list[Part] = []
        for window in self._prices.layers_of:
            for place in places:
                layers = self._p.column()
                hosted = None if self._hosted is None else self._p.column()
                if hosted is not None:
                    self._p.at_most([(hosted, 1.0), (layers, -1.0)], 0.0)
                parts.append(Part(self._prices.attention[window], layers, hosted, place))
        self._share_out(parts)
        return parts

    def _share_out(self, parts: list[Part]) -> None:
        """Shares sum to one: of each window, of each place, and of the KV."""
        per_window = len(parts) // len(self._prices.layers_of)
        for index, count in enumerate(self._prices.layers_of.values()):
            group = parts[index * per_window : (index + 1) * per_window]
            self._p.equal([(part.layers, 1.0) for part in group], count)
            if self._hosted is not None:
                shares = [(part.hosted, 1.0) for part in group if part.hosted is not None]
                self._p.equal([*shares, (self._hosted, -count)], 0.0)
        for place in dict.fromkeys(part.place for part in parts):
            homes = [(c, 1.0) for home, c in self._homes.items() if _place(home) == place]
            group = [(part.layers, -1.0) for part in parts if part.place == place]
            fixed = len(self._prices.question.model.dense_layers) if place == "accelerator" else 0
            self._p.equal([*homes, *group], -float(fixed))

    # --- memory -----------------------------------------------------------------------------------

    def _memory(self) -> None:
        prices, way = self._prices, self._way
        question, footprint = prices.question, prices.footprint
        slots = STREAM_SLOTS if way.streams and not way.shares_mixtures else 0
        slot_bytes = footprint.mlp_bytes if way.streams_mlps else footprint.layer_bytes
        fixed = footprint.outside_bytes + slots * slot_bytes
        fixed += footprint.workspace(
            way.strategy,
            self._through + self._cohort,
            self._rows.step_tokens,
            device_rows=self._through,
            cohorts=self._cohorts(),
        )
        read = footprint.disk_slots_bytes if way.reads else 0
        on_device, on_host = (read, 0) if question.host_only else (0, read)
        row_bytes = prices.row_bytes * self._through
        hosted: Form = [] if self._hosted is None else [(self._hosted, row_bytes)]
        if footprint.embedding_bytes:
            looked_up = self._p.column(upper=1.0)
            hosted.append((looked_up, float(footprint.embedding_bytes)))
        self._p.at_most(
            [
                *self._layer_form(prices.layer.device_bytes),
                *self._shared_slots(),
                *((c, -f) for c, f in hosted),
            ],
            question.device_bytes - fixed - on_device - row_bytes,
        )
        self._p.at_most(
            [*self._layer_form(prices.layer.host_bytes), *hosted],
            question.host_bytes - on_host - prices.row_bytes * self._cohort,
        )

    def _cohorts(self) -> tuple[int, int]:
        """How many there are, and rows of one."""
        candidate = candidate_of(self._way.strategy, Elsewhere(), self._through, self._cohort)
        return candidate.num_cohorts, candidate.cohort_rows

    def _shared_slots(self) -> Form:
        """Slots for what is left of two mixtures: of all, as much is."""
        each = STREAM_SLOTS * self._prices.footprint.experts_bytes
        share = each / self._prices.question.movable_layers
        return [(column, share) for home, column in self._homes.items() if home in EXPERTS_STREAMED]

    def _layer_form(self, value: Callable[[LayerHome], float]) -> Form:
        return [(column, float(value(home))) for home, column in self._homes.items()]

    # --- time -------------------------------------------------------------------------------------

    def _tokens(self, kind: SweepKind) -> int:
        return (self._through if kind.decodes else 0) + kind.prompt_tokens

    def _time(self, kind: SweepKind) -> int:
        """The column of one kind's time."""
        prices, tokens = self._prices, self._tokens(kind)
        time = self._p.column()
        alone = self._way.alone and not tokens
        layer: dict[LayerHome, LayerPrice] = {
            home: prices.layer.of(_used(home, kind), max(1, tokens)) for home in self._homes
        }
        cohort = prices.advancing(self._way, self._cohort) if kind.decodes else 0
        cpu_s = prices.cohort_s(self._way, cohort)
        dram_bytes = prices.cohort_bytes(self._way, cohort)
        attention: list[AttentionForms] = []
        if alone:
            one_s = prices.beside_passes_s if self._way.halves else None
            fixed_s = (
                one_s(self._way, 0, cohort) if one_s else prices.one_layer_s(self._way, cohort)
            )
            self._at_least(time, [], max(fixed_s, cpu_s))
        else:
            carried = self._carried(kind)
            attention = [
                attention_forms(self._p, part, carried, self._unit_s) for part in self._parts
            ]
            logits = (self._through if kind.decodes else 0) + bool(kind.prompt_tokens)
            chain = [entry for forms in attention for entry in forms.chain]
            stages = self._priced(layer, lambda price: price.chain_s)
            around_s = prices.ends_s(tokens, logits) + prices.layer.dense_s(tokens)
            around_s += prices.sharing_s(self._way, tokens, cohort)
            self._at_least(time, [*chain, *stages], around_s)
            if self._way.shares_mixtures:
                there = self._priced(layer, lambda price: price.chain_s + price.longer_there_s)
                self._at_least(time, [*chain, *there], around_s)
            if self._way.passes and cohort:
                beside_s = prices.beside_passes_s(self._way, self._through, cohort)
                self._at_least(time, stages, around_s + beside_s)
            cpu = [entry for forms in attention for entry in forms.cpu]
            cpu += self._priced(layer, lambda price: price.cpu_s)
            self._at_least(time, cpu, cpu_s)
        stay = self._stay(kind, layer)
        self._at_least(time, self._priced(layer, lambda price: price.link_s), -stay.link_s)
        self._at_least(time, self._priced(layer, lambda price: price.disk_s), 0.0)
        pool_s = prices.question.hardware.host.pool_bytes_per_s * self._unit_s
        moved = [(c, size / pool_s) for forms in attention for c, size in forms.dram_bytes]
        weights = self._priced(layer, lambda price: price.dram_bytes)
        moved += [(c, size * self._unit_s / pool_s) for c, size in weights]
        dram_bytes -= stay.dram_bytes
        self._at_least(time, moved, dram_bytes / pool_s * self._unit_s)
        return time

    def _stay(self, kind: SweepKind, layer: Mapping[LayerHome, LayerPrice]) -> LayerPrice:
        """What loads are spared where the CPU takes over all but those that stay in their slots."""
        lent = list(_LENT.intersection(self._homes))
        if not lent or kind.prompt_tokens:
            return LayerPrice(0.0)
        load = layer[_streamed(lent[0])]
        return LayerPrice(
            0.0, link_s=STREAM_SLOTS * load.link_s, dram_bytes=STREAM_SLOTS * load.dram_bytes
        )

    def _priced(
        self, layer: Mapping[LayerHome, LayerPrice], value: Callable[[LayerPrice], float]
    ) -> Form:
        form = [(c, value(layer[home]) / self._unit_s) for home, c in self._homes.items()]
        return [(column, factor) for column, factor in form if factor]

    def _at_least(self, time: int, form: Form, fixed_s: float) -> None:
        """A time is at least this much."""
        if form or fixed_s:
            self._p.at_most([*form, (time, -1.0)], -fixed_s / self._unit_s)

    def _carried(self, kind: SweepKind) -> Carried:
        strategy, rows = self._way.strategy, self._rows
        most: float | None = None
        if strategy == "gpu-only":
            most = 1.0
        elif self._way.has_cohort:
            through = rows.through.most
            most = through / self._prices.served(self._way, through, rows.cohort.least)
        through = self._through if kind.decodes else 0
        return Carried(through, kind.prompt_tokens, strategy == "ride-along", most)

    def _objective(self, times: Sequence[int]) -> None:
        """Time per output token, two ways, of which the longer counts: the kinds of sweeps for the
        least rows over the tokens of the most, and each kind's least number per token.
        """
        question, lengths = self._prices.question, self._prices.question.lengths
        served, per_output = 1.0, 1 / lengths.generated_tokens
        if question.objective == "throughput":
            served = self._prices.span(self._way, self._rows).most_served
            per_output *= lengths.decode_sweeps
        token = self._p.column(cost=1.0)
        for weights in (
            [kind.share / served for kind in self._kinds],
            [kind.per_served for kind in self._kinds],
        ):
            form = [(t, weight * per_output) for t, weight in zip(times, weights, strict=True)]
            self._p.at_most([*form, (token, -1.0)], 0.0)

    def _keep_bound(self, times: Sequence[int]) -> None:
        """What a request sees per token."""
        question = self._prices.question
        if question.tpot_bound_s is None:
            return
        alone = question.objective == "latency"
        seen = [
            (time, 1.0 if alone else kind.share)
            for time, kind in zip(times, self._kinds, strict=True)
            if kind.decodes
        ]
        sweeps = self._prices.sweeps_per_token(self._way)
        most_s = question.tpot_bound_s / sweeps * _ROUNDED_UP
        self._p.at_most(seen, most_s / self._unit_s)


def _place(home: LayerHome) -> Place:
    if home == "host":
        return "lent"
    return "cpu" if home in ON_CPU else "accelerator"


def _used(home: LayerHome, kind: SweepKind) -> LayerHome:
    """How a layer is used: lent ones are streamed where prompts are read."""
    if kind.prompt_tokens:
        return _streamed(home)
    if home == "host":
        return "cpu"
    if home == "host-mlp":
        return "cpu-mlp"
    return "experts-cpu" if home == "experts-host" else home


def _streamed(home: LayerHome) -> LayerHome:
    """What a layer that may be lent is where it is not."""
    if home == "host":
        return "streamed"
    if home == "host-mlp":
        return "streamed-mlp"
    return "experts-streamed" if home == "experts-host" else home
