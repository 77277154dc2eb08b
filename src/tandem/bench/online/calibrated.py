"""`tandem bench calibration`: what an engine reaches that was told wrong times.

Strategy `auto` on the paced emulator in virtual time, in a steady state of requests on the
accelerator and on the host. The truth deviates from the descriptions: the accelerator's and the
link's every rate by some percent, and the host's and the link's by as much or by a factor, of which
choices depend. The same requests are served three times: by an engine that
chooses its steps by prices as described, by one that corrects them as it runs (`--calibrate`), and
by one that was informed: its prices are from probes of the truth. What counts is what each makes
after as many steps as calibration is given. All figures carry the word `virtual`.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

from tandem.bench.online.cell import DTYPE, cut_model
from tandem.bench.records import BenchRow, row_of_samples
from tandem.bench.replay.replay import NOT_REPLAYED, Recorded, Replay, replay
from tandem.bench.replay.rows import replay_rows
from tandem.bench.steady_start import DEVICE, HOST, SteadyStart, fill
from tandem.cost.step_prices import StepPrices
from tandem.cost.step_rates import step_prices
from tandem.engine.building.paced import PacedEngine, build_paced_core
from tandem.engine.building.paced_machine import PacedOptions
from tandem.memory.page import KVPageSpec
from tandem.models.catalogue import plannable_spec
from tandem.plan.online import OnlinePlan
from tandem.probes.accelerator import measure_accelerator
from tandem.probes.effort import coarse
from tandem.profiling.hardware import accelerator_facts, link_facts
from tandem.runtime.overlap_meter import OverlapMeter, StepOverlap
from tandem.runtime.paced.host_truth import HostTruth
from tandem.runtime.paced.perturbed_rates import Perturbation
from tandem.runtime.paced.probed import PacedAccelerator
from tandem.runtime.paced.virtual import VirtualClock, VirtualPool
from tandem.scheduler.strategies.registry import make_strategy
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.hardware import HardwareSpec
from tandem.spec.hardware_file import load_hardware
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision

SUITE = "calibration"
AS_DESCRIBED, CALIBRATED, INFORMED = "as described", "calibrated", "informed"
LEAST_SHARE = 0.95
"""Of the informed engine's rate, that calibration is to reach."""
_BLOCK_SIZE, _BATCHED_TOKENS = 16, 2048
_LONGEST = 1.2  # of contexts, as `fill` draws them
_IN_FLIGHT = 16
_NO_CACHE = 1  # bytes of cache that the host's pages must exceed: they are not read


@dataclass(frozen=True, slots=True)
class CalibrationCell:
    """Requests on an emulated machine.

    Attributes:
        context: tokens that requests begin with, in the mean.
        device_rows, host_rows: requests with their KV here and there.
    """

    hardware: str
    model: str
    context: int
    device_rows: int
    host_rows: int

    def __str__(self) -> str:
        return (
            f"{self.hardware}, {self.model}, {self.device_rows} requests on the accelerator and "
            f"{self.host_rows} on the host, {self.context:,} tokens each"
        )


@dataclass(frozen=True, slots=True)
class Deviation:
    """How a machine differs from its description.

    Attributes:
        terms: by how much every rate of the accelerator and the link may be off, either way.
        host: by what the host's rates are multiplied; None: a number within `terms` of 1, drawn.
        link: by what the link's rates are multiplied, beside that.
    """

    name: str
    terms: float = 0.3
    host: float | None = None
    link: float = 1.0

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class CalibrationBench:
    """How much is run.

    Attributes:
        deviations: that each cell is run under.
        truths: of each of them. first_seed: of truths; none was looked at when calibration was
            made.
        settling: steps that calibration is given. steps: that count after them.
        replays: execute all programs exactly afterwards, tokens compared.
    """

    cells: tuple[CalibrationCell, ...] = (
        CalibrationCell("rtx4090-scaled", "llama-3.1-8b", 256, 64, 64),
        CalibrationCell("rtx4090-scaled", "llama-3.1-8b", 1024, 32, 32),
        CalibrationCell("rtx4090-scaled", "llama-2-7b", 512, 16, 32),
        CalibrationCell("a10g-scaled", "llama-3.1-8b", 512, 32, 64),
    )
    deviations: tuple[Deviation, ...] = (
        Deviation("all rates off by up to 30%"),
        Deviation("all rates off by up to 90%", terms=0.9),
        Deviation("CPU half as fast", host=0.5),
        Deviation("CPU a quarter as fast", host=0.25),
        Deviation("CPU twice as fast", host=2.0),
        Deviation("link half as fast", host=1.0, link=0.5),
    )
    layers: int = 8
    truths: int = 2
    first_seed: int = 101
    settling: int = 200
    steps: int = 200
    replays: bool = True


@dataclass(frozen=True, slots=True)
class Calibration:
    """Tokens per second of a cell under one truth, by who chose the steps.

    Attributes:
        replay: of all three runs' programs; None: they were not replayed.
    """

    seed: int
    as_described: float
    calibrated: float
    informed: float
    replay: Replay | None = None

    @property
    def share(self) -> float:
        """Of the informed engine's rate, with calibration."""
        return self.calibrated / self.informed

    @property
    def share_before(self) -> float:
        """Without it."""
        return self.as_described / self.informed


Outcomes = dict[tuple[CalibrationCell, Deviation], tuple[Calibration, ...]]


def run_calibration(bench: CalibrationBench, report: Callable[[str], None]) -> Outcomes:
    """Every cell under every truth."""
    found: Outcomes = {}
    for cell in bench.cells:
        for deviation in bench.deviations:
            report(f"{cell}; {deviation}")
            found[cell, deviation] = tuple(
                _measure(bench, cell, deviation, bench.first_seed + number)
                for number in range(bench.truths)
            )
    return found


def rows_of(bench: CalibrationBench, outcomes: Outcomes) -> tuple[BenchRow, ...]:
    """Rows of the common record format: medians over the truths, with the worst and the best."""
    rows: list[BenchRow] = []
    for (cell, deviation), each in outcomes.items():
        case = f"{cell}; {deviation}; {bench.layers} layers, after {bench.settling} steps"
        rates = {
            AS_DESCRIBED: [one.as_described for one in each],
            CALIBRATED: [one.calibrated for one in each],
            INFORMED: [one.informed for one in each],
        }
        for variant, samples in rates.items():
            name = f"virtual {variant}"
            rows.append(row_of_samples(case, name, "throughput", samples, "tokens/s"))
        for variant, shares in (
            (AS_DESCRIBED, [one.share_before for one in each]),
            (CALIBRATED, [one.share for one in each]),
        ):
            name, metric = f"virtual {variant}", "share of the informed rate"
            bound = LEAST_SHARE if variant == CALIBRATED else None
            rows.append(row_of_samples(case, name, metric, shares, "ratio", bound))
        replays = [one.replay for one in each if one.replay is not None]
        if replays:
            rows += replay_rows(case, "virtual all three", Replay.joined(replays))
    return tuple(rows)


def describe(outcomes: Outcomes) -> list[str]:
    """Lines for people, each beside the target."""
    lines: list[str] = []
    for (cell, deviation), each in outcomes.items():
        shares = [one.share for one in each]
        before = [one.share_before for one in each]
        verdict = "as aimed for" if min(shares) >= LEAST_SHARE else "BELOW"
        lines += [
            f"{cell}; {deviation}",
            f"  of the informed rate: {median(shares):.3f} calibrated (worst {min(shares):.3f}; "
            f"{verdict}: {LEAST_SHARE}), {median(before):.3f} as described (worst "
            f"{min(before):.3f})",
        ]
    replays = [one.replay for each in outcomes.values() for one in each if one.replay is not None]
    return [*lines, Replay.joined(replays).describe() if replays else NOT_REPLAYED]


def _measure(
    bench: CalibrationBench, cell: CalibrationCell, deviation: Deviation, seed: int
) -> Calibration:
    truth = Perturbation(seed, deviation.terms, tile_rows=64, jitter=0.02)
    machine = _Machine.of(cell, bench, deviation, truth)
    rates: dict[str, float] = {}
    replays: list[Replay] = []
    for variant in (AS_DESCRIBED, CALIBRATED, INFORMED):
        rate, run = _tokens_per_s(bench, cell, machine, variant)
        rates[variant] = rate
        if run is not None:
            replays.append(replay(run))
    whole = Replay.joined(replays) if replays else None
    return Calibration(seed, rates[AS_DESCRIBED], rates[CALIBRATED], rates[INFORMED], whole)


@dataclass(frozen=True, slots=True)
class _Machine:
    """What a cell runs on.

    Attributes:
        described: as everybody is told. emulated: what the emulator perturbs. true: as probes find
            it; its host is as it truly is.
    """

    model: ModelSpec
    described: HardwareSpec
    emulated: HardwareSpec
    true: HardwareSpec
    truth: Perturbation

    @staticmethod
    def of(
        cell: CalibrationCell, bench: CalibrationBench, deviation: Deviation, truth: Perturbation
    ) -> "_Machine":
        described = load_hardware(cell.hardware)
        link = described.link
        link = replace(
            link,
            h2d_bytes_per_s=deviation.link * link.h2d_bytes_per_s,
            d2h_bytes_per_s=deviation.link * link.d2h_bytes_per_s,
        )
        emulated = replace(described, link=link)
        found = measure_accelerator(PacedAccelerator(emulated, truth, VirtualClock()), coarse())
        draw, host = random.Random(f"{truth.seed} host"), described.host
        factor = deviation.host or 1 + draw.uniform(-truth.terms, truth.terms)
        host = replace(
            host,
            memory_bandwidth_bytes_per_s=factor * host.memory_bandwidth_bytes_per_s,
            flops_per_s=factor * host.flops_per_s,
        )
        true = HardwareSpec(found.name, accelerator_facts(found), link_facts(found), host)
        model = cut_model(plannable_spec(cell.model), bench.layers)
        return _Machine(model, described, emulated, true, truth)


def _tokens_per_s(
    bench: CalibrationBench, cell: CalibrationCell, machine: _Machine, variant: str
) -> tuple[float, Recorded | None]:
    """And the run, if it is to be replayed."""
    clock, meter = VirtualClock(), OverlapMeter()
    engine = _build(bench, cell, machine, variant, clock, meter)
    steps = _Steps(engine, meter)
    rows = {DEVICE: cell.device_rows, HOST: cell.host_rows}
    try:
        _check_room(engine.memory.plan, bench, cell)
        fill(engine, rows, cell.context, _most_tokens(bench))
        steps.run(bench.settling)
        begin_s, tokens = clock.now(), steps.run(bench.steps)
        rate = tokens / (clock.now() - begin_s)
    finally:
        engine.core.close()
    if not bench.replays:
        return rate, None
    return rate, Recorded.of(f"{cell}, {variant}", engine, bench.layers)


def _check_room(plan: OnlinePlan, bench: CalibrationBench, cell: CalibrationCell) -> None:
    """Nobody may grow into the other tier.

    Raises:
        ConfigError: somebody would.
    """
    each = -(-(int(cell.context * _LONGEST) + _most_tokens(bench)) // _BLOCK_SIZE) + 1
    room = {DEVICE: plan.device_blocks // each, HOST: plan.host_blocks // each}
    for place, count in {DEVICE: cell.device_rows, HOST: cell.host_rows}.items():
        if count > room[place]:
            raise ConfigError(
                f"{cell}: the {place}'s memory has room for {room[place]}; lower their number, or "
                "the context"
            )


def _most_tokens(bench: CalibrationBench) -> int:
    """That a request may emit: one in each step, and some in those that are in flight."""
    return bench.settling + bench.steps + _IN_FLIGHT


def _build(
    bench: CalibrationBench,
    cell: CalibrationCell,
    machine: _Machine,
    variant: str,
    clock: VirtualClock,
    meter: OverlapMeter,
) -> PacedEngine:
    longest = int(cell.context * _LONGEST) + 1
    config = EngineConfig(
        cell.model,
        dtype=str(DTYPE),
        strategy="auto",
        block_size=_BLOCK_SIZE,
        max_model_len=longest + _most_tokens(bench),
        max_num_seqs=cell.device_rows + cell.host_rows,
        max_num_batched_tokens=max(_BATCHED_TOKENS, longest),
        max_host_seqs=cell.host_rows,
        enable_prefix_caching=False,
        calibrate=variant == CALIBRATED,
    )
    page = KVPageSpec.of_model(machine.model, dtype=DTYPE, block_size=_BLOCK_SIZE)
    host = HostTruth(machine.model, page, machine.true.host, machine.truth)
    options = PacedOptions(perturbation=machine.truth, cores=(0,), cache_bytes=_NO_CACHE)

    def built(prices: StepPrices | None, *, journaled: bool = False) -> PacedEngine:
        return build_paced_core(
            config,
            machine.model,
            machine.emulated,
            options,
            strategy=SteadyStart(make_strategy("auto")),
            prices=prices,
            clock=clock,
            pool=VirtualPool(host.duration_s),
            listeners=(meter.executed,),
            journaled=journaled,
        )

    engine = built(None)
    plan = engine.memory.plan
    engine.core.close()
    size = page.bytes_per_block_layer / page.block_size
    precision = Precision.uniform(DTYPE)
    told = machine.true if variant == INFORMED else machine.described
    prices = step_prices(plan, machine.model, precision, told, size, size)
    return built(prices, journaled=bench.replays)


class _Steps:
    """Steps of an engine, as they end."""

    def __init__(self, engine: PacedEngine, meter: OverlapMeter) -> None:
        self._core, self._ended = engine.core, 0
        meter.on_step(self._count)

    def run(self, steps: int) -> int:
        """So many more; tokens given out meanwhile."""
        tokens, until = 0, self._ended + steps
        while self._ended < until:
            tokens += sum(len(output.token_ids) for output in self._core.step())
        return tokens

    def _count(self, step: StepOverlap) -> None:
        del step
        self._ended += 1
