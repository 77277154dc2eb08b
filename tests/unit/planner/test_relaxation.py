"""The linear programme against shares tried one by one, and against sums done by hand."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import pytest
from tests.unit.planner.questions import ask, short

from tandem.models.catalogue import plannable_spec
from tandem.planner.answer import answer
from tandem.planner.candidate import Strategy, candidate_of
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.footprint import Footprint
from tandem.planner.passing import LEAST_PROMPTS_HERE
from tandem.planner.policies import POLICIES
from tandem.planner.question import Question
from tandem.planner.relaxation.ceiling import Ceilings
from tandem.planner.relaxation.homes import THROUGH_SLOTS, LayerHome
from tandem.planner.relaxation.prices import Prices
from tandem.planner.relaxation.programme import Programme
from tandem.planner.relaxation.rows import Range, Rows
from tandem.planner.relaxation.shares import Shares, least_shares
from tandem.planner.relaxation.solver import Solver
from tandem.planner.relaxation.sweep_kinds import SweepKind
from tandem.planner.relaxation.way import Way
from tandem.planner.search.search import Search
from tandem.spec.hardware import HardwareSpec
from tandem.spec.model import ModelSpec

AUTO = POLICIES["auto"]
LAYERS = 8
SMALL = short(plannable_spec("llama-3.1-8b"), LAYERS)
WINDOWED = short(plannable_spec("gemma-3-27b"), 6)


@dataclass(frozen=True)
class Tried:
    """Time of one choice of shares, by the resources' own sums."""

    prices: Prices
    way: Way
    rows: int

    @property
    def range(self) -> Rows:
        return Rows(Range(self.rows, self.rows))

    def token_s(self, layers: dict[LayerHome, float], hosted: dict[bool, float]) -> float:
        """Per output token of a steady state; `hosted` by whether the CPU computes the layer."""
        question = self.prices.question
        (kinds,) = self.prices.kinds(self.way, self.range)
        sweep_s = sum(kind.share * self.sweep_s(kind, layers, hosted) for kind in kinds)
        lengths = question.lengths
        if question.objective == "latency":
            return sweep_s / lengths.generated_tokens
        tokens = self.prices.span(self.way, self.range).most_served
        return sweep_s * lengths.decode_sweeps / lengths.generated_tokens / tokens

    def sweep_s(
        self, kind: SweepKind, layers: dict[LayerHome, float], hosted: dict[bool, float]
    ) -> float:
        """The best of several shares of the prompts that are read on the accelerator: of its rows,
        or of all.
        """
        shares = [0.0, 0.5, 1.0] if kind.prompt_tokens else [0.0]
        if self.way.reads_here:
            shares = [1.0]
        far_shares = shares if layers.get("cpu") else [0.0]
        most = {cpu: 1.0 if self.way.reads_here else 1 - hosted[cpu] for cpu in hosted}
        return min(
            self._sweep_s(kind, layers, hosted, {False: near * most[False], True: far * most[True]})
            for near, far in product(shares, far_shares)
        )

    def _sweep_s(
        self,
        kind: SweepKind,
        layers: dict[LayerHome, float],
        hosted: dict[bool, float],
        prompts: dict[bool, float],
    ) -> float:
        prices, question = self.prices, self.prices.question
        rows = prices.decoding(self.range) if kind.decodes else 0.0
        whole, chunk = int(rows), kind.prompt_tokens
        chain_s = prices.ends_s(whole + chunk, whole + bool(chunk))
        cpu_s = link_s = disk_s = dram = 0.0
        for home, count in layers.items():
            price = prices.layer.of(home, max(1, whole + chunk))
            chain_s += count * price.chain_s
            cpu_s += count * price.cpu_s
            link_s += count * price.link_s
            disk_s += count * price.disk_s
            dram += count * price.dram_bytes
        on_cpu = layers.get("cpu", 0.0)
        (attention,) = prices.attention.values()
        for cpu, count in ((False, sum(layers.values()) - on_cpu), (True, on_cpu)):
            device = (1 - hosted[cpu]) * rows, prompts[cpu] * chunk
            host = hosted[cpu] * rows, chunk - device[1]
            near_s = max(line.at(*device) for line in attention.device)
            far_s = max(0.0, *(line.at(*host) for line in attention.host))
            cpu_s += count * far_s
            dram += count * attention.host_bytes.at(*host)
            if cpu:
                near_s += attention.back.each.at(*device)
            else:
                far_s += attention.copies.at(*host)
                dram += count * attention.copied_bytes.at(*host)
            chain_s += count * max(near_s, far_s)
        pool = question.hardware.host.pool_bytes_per_s
        return max(chain_s, cpu_s, link_s, disk_s, dram / pool)

    def fits(self, layers: dict[LayerHome, float], hosted: float) -> bool:
        """Both memories."""
        question, footprint = self.prices.question, self.prices.footprint
        row = footprint.row_bytes * self.rows
        layer, mlp = footprint.layer_bytes, self.prices.layer.host_bytes("cpu-mlp")
        apart = layers.get("cpu-mlp", 0.0) + layers.get("streamed-mlp", 0.0)
        device = footprint.outside_bytes + footprint.workspace(self.way.strategy, self.rows)
        device += (
            footprint.held.passing(LEAST_PROMPTS_HERE) * footprint.block_bytes
            if self.way.reads_here
            else 0
        )
        device += 2 * (mlp if self.way.streams_mlps else layer) if self.way.streams else 0
        device += layers.get("resident", 0.0) * layer + apart * (layer - mlp) + (1 - hosted) * row
        host = (layers.get("streamed", 0.0) + layers.get("cpu", 0.0)) * layer + apart * mlp
        host += footprint.disk_slots_bytes if self.way.reads else 0
        # embeddings make room as far as need be
        moved = max(0.0, device - question.device_bytes)
        in_host = host + hosted * row + moved
        return moved <= footprint.embedding_bytes and in_host <= question.host_bytes


def simplex(homes: tuple[LayerHome, ...], steps: int) -> Iterator[dict[LayerHome, float]]:
    """Shares of the layers in whole steps."""
    if len(homes) == 1:
        yield {homes[0]: float(LAYERS)}
        return
    for parts in product(range(steps + 1), repeat=len(homes) - 1):
        if sum(parts) <= steps:
            counts = [*parts, steps - sum(parts)]
            layers = [LAYERS * count / steps for count in counts]
            yield dict(zip(homes, layers, strict=True))


def best_tried(tried: Tried, steps: int) -> float:
    shares = [step / steps for step in range(steps + 1)]
    best = float("inf")
    for layers in simplex(tried.way.homes, steps):
        if tried.way.streams and sum(layers.get(home, 0) for home in THROUGH_SLOTS) < 3:
            continue
        on_cpu = layers.get("cpu", 0.0) / LAYERS
        for near, far in product(shares, shares if 0 < on_cpu < 1 else [0.0]):
            far = near if on_cpu == 1 else far
            if tried.fits(layers, (1 - on_cpu) * near + on_cpu * far):
                best = min(best, tried.token_s(layers, {False: near, True: far}))
    return best


def solved(prices: Prices, way: Way, rows: int) -> Shares:
    found = least_shares(prices, way, Rows(Range(rows, rows)))
    assert found is not None
    return found


def with_disk(hardware: HardwareSpec) -> HardwareSpec:
    return replace(hardware, host=replace(hardware.host, disk_bytes_per_s=3e9))


@pytest.mark.parametrize("reads_here", [False, True], ids=["there", "here"])
@pytest.mark.parametrize("rows", [1, 12, 40])
@pytest.mark.parametrize(
    ("homes", "steps"),
    [
        (("resident", "streamed"), 48),
        (("resident", "cpu"), 48),
        (("resident", "cpu-mlp"), 48),
        (("resident", "streamed-mlp"), 48),
        (("resident", "streamed", "disk_streamed"), 40),
    ],
)
def test_no_shares_tried_one_by_one_are_better_and_some_are_about_as_good(
    homes: tuple[LayerHome, ...], steps: int, rows: int, reads_here: bool
) -> None:
    question = ask(SMALL, prompt="1500", requests=100)
    embedding = Footprint(question).embedding_bytes
    question = replace(
        question,
        device_bytes=int(4.2e9) - embedding,
        hardware=with_disk(question.hardware),
    )
    if "disk_streamed" in homes:
        slots = Footprint(question).disk_slots_bytes
        question = replace(question, host_bytes=int(1.6e9) + slots + embedding)
    prices = Prices(question, Footprint(question))
    way = Way("ride-along", homes, reads_here=reads_here)
    found = solved(prices, way, rows)
    tried = best_tried(Tried(prices, way, rows), steps)
    assert found.token_s <= tried * (1 + 1e-9)
    assert found.token_s >= tried * 0.94  # a step of the grid away


def test_resident_weights_and_rows_take_what_the_chain_says() -> None:
    """A grid of one point: the closed form itself."""
    question = ask(SMALL, objective="latency", prompt="100")
    search = Search(question)
    found = solved(Prices(question, search.footprint), Way("gpu-only", ("resident",)), 1)
    best = search.best(AUTO)
    assert best is not None
    assert 1 / found.token_s == pytest.approx(best.tokens_per_s, rel=1e-3)


def test_what_a_memory_cannot_hold_is_streamed_and_no_more() -> None:
    """Half the layers do not fit, and the link is far too slow: the bound is the link's time."""
    tied = replace(SMALL, tie_embeddings=True)
    question = ask(tied, objective="latency", prompt="64", generate="512")
    footprint = Footprint(question)
    room = footprint.outside_bytes + footprint.workspace("gpu-only", 1) + 6 * footprint.layer_bytes
    question = replace(question, device_bytes=room + footprint.row_bytes)
    prices = Prices(question, footprint)
    found = solved(prices, Way("gpu-only", ("resident", "streamed")), 1)
    assert found.layers["resident"] == pytest.approx(4.0)  # two more are slots
    load_s = footprint.layer_bytes / question.hardware.link.h2d_bytes_per_s
    assert found.token_s == pytest.approx(4 * load_s, rel=0.02)


@pytest.mark.parametrize("model", [SMALL, WINDOWED], ids=["all", "windows"])
def test_homes_that_the_engine_has_beside_these_only_raise_the_ceiling(model: ModelSpec) -> None:
    question = ask(model, device_bytes=int(6e9 if model is WINDOWED else 3.5e9), requests=50)
    question = replace(question, hardware=with_disk(question.hardware))
    less = ceiling(question, ("resident", "streamed"))
    others: tuple[LayerHome, ...] = ("cpu", "cpu-mlp", "disk_streamed", "streamed-mlp", "host-mlp")
    more = ceiling(question, ("resident", "streamed", *others))
    assert more >= less * (1 - 1e-9) > 0


def ceiling(question: Question, homes: tuple[LayerHome, ...]) -> float:
    return Ceilings(question, Footprint(question), AUTO, homes).ceiling().tokens_per_s


def test_nothing_fits_and_nothing_is_bounded() -> None:
    question = ask("llama-3.1-70b", host_bytes=10**9)
    found = Ceilings(question, Footprint(question), AUTO).ceiling()
    assert found.best is None
    assert found.tokens_per_s == 0.0


def test_a_bound_on_time_per_token_lowers_the_ceiling() -> None:
    free = Ceilings(ask(), Footprint(ask()), AUTO).ceiling()
    bound = Ceilings(ask(tpot_bound_s=0.05), Footprint(ask()), AUTO).ceiling()
    assert 0 < bound.tokens_per_s < 0.9 * free.tokens_per_s


def test_an_answer_says_how_much_of_the_ceiling_it_reaches() -> None:
    found = answer(ask("opt-30b", "a4000"))
    assert found.ceiling is not None
    assert 0.8 < found.chosen.tokens_per_s / found.ceiling.tokens_per_s <= 1
    # far less is possible for a worse policy, whose ceiling is its own
    worse = answer(ask("opt-30b", "a4000"), "zero-inference")
    assert worse.ceiling is not None
    assert worse.ceiling.tokens_per_s < found.ceiling.tokens_per_s
    assert worse.chosen.tokens_per_s <= worse.ceiling.tokens_per_s


def test_a_programme_is_minimised_and_a_contradiction_is_told() -> None:
    solver = Solver()
    programme = Programme()
    x, y = programme.column(cost=2.0), programme.column(cost=3.0, upper=1.5)
    programme.at_most([(x, -1.0), (y, -1.0)], -2.0)
    found = solver.minimise(programme)
    assert found is not None
    assert found.value == pytest.approx(4.0)
    assert found.columns == pytest.approx((2.0, 0.0))
    programme.equal([(x, 1.0)], 0.25)
    assert solver.minimise(programme) is None


def test_a_programme_may_begin_where_another_one_ended() -> None:
    def programme(least: float) -> Programme:
        made = Programme()
        x, y = made.column(cost=2.0), made.column(cost=3.0, upper=1.5)
        made.at_most([(x, -1.0), (y, -2.0)], -least)
        return made

    solver = Solver()
    first = solver.minimise(programme(2.0))
    assert first is not None
    assert first.columns == pytest.approx((0.0, 1.0))
    for least, columns in ((2.5, (0.0, 1.25)), (5.0, (2.0, 1.5))):  # the second leaves the basis
        found = solver.minimise(programme(least), first.basis)
        assert found is not None
        assert found.columns == pytest.approx(columns)


@pytest.mark.parametrize("strategy", ["rendezvous", "rendezvous-ahead"])
@pytest.mark.parametrize("through", [4, 300])
def test_stages_that_a_cohort_shares_with_others_take_their_time(
    strategy: Strategy, through: int
) -> None:
    """Of rows bound by memory next to nothing, by arithmetic as much as any rows' stages."""
    question = ask(SMALL, "a10g", "server-genoa", prompt="1", generate="100", requests=4000)
    host = replace(question.hardware.host, memory_bandwidth_bytes_per_s=1e15, flops_per_s=1e18)
    question = replace(question, hardware=replace(question.hardware, host=host))
    prices, cohort = Prices(question, Footprint(question)), 200
    way = Way(strategy, ("resident",))
    rows = Rows(Range(through, through), Range(cohort, cohort))
    found = least_shares(prices, way, rows)
    assert found is not None
    sweep_s = found.token_s * prices.span(way, rows).most_served * 100 / 99  # of 99 later tokens
    through = int(prices.decoding(rows))
    each_s = [prices.layer.of("resident", count).chain_s for count in (through, through + 100)]
    joins = 1.0 if strategy == "rendezvous" else 2 * LAYERS / (LAYERS + 2)
    attended = max(line.at(through) for line in prices.attention[0].device)
    stages_s = LAYERS * (each_s[0] + attended) + joins * (each_s[1] - each_s[0])
    assert sweep_s == pytest.approx(stages_s + prices.ends_s(through, through), rel=0.02)
    token_s = (each_s[1] - each_s[0]) / 100
    marginal_s = (
        prices.layer.of("resident", 1300).chain_s - prices.layer.of("resident", 1200).chain_s
    )
    assert (token_s > 0.9 * marginal_s / 100) == (through > 4)


def test_a_row_beside_a_cohort_shares_its_stages_though_its_place_reads_prompts_at_times() -> None:
    """Fewer than one row decodes in the mean; stages of none would leave all to the cohort."""
    model = short(plannable_spec("qwen3-30b-a3b"), 6)
    question = ask(model, "t4", "server-genoa", prompt="1", generate="1-1000", requests=7)
    question = replace(question, max_num_batched_tokens=32, block_size=256)
    search, way = Search(question), Way("rendezvous-ahead", ("resident",))
    found = least_shares(Prices(question, search.footprint), way, Rows(Range(1, 1), Range(6, 6)))
    assert found is not None
    candidate = candidate_of(way.strategy, Elsewhere(), 1, 6)
    most = search.predictor.bound(candidate).tokens_per_s
    assert most * found.token_s > 0.9
    assert most * found.token_s <= 1 + 1e-9
