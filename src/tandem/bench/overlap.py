"""`tandem bench overlap`: one step of each strategy on one machine, as a picture and in shares.

The engine itself runs (scheduler, strategies, programs) on the paced emulator in virtual time: the
accelerator, the link and the CPU's attention all take what the machine's description says, and
nothing is measured. All figures carry the word `virtual`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tandem.bench.records import BenchRow
from tandem.bench.steady_start import DEVICE, HOST, SteadyStart, fill
from tandem.engine.building.paced import PacedEngine, build_paced_core
from tandem.engine.building.paced_machine import PacedOptions
from tandem.memory.page import KVPageSpec
from tandem.models.catalogue import plannable_spec
from tandem.plan.executed_op import ExecutedOp
from tandem.plan.program import Part
from tandem.plan.strategy_names import STRATEGIES
from tandem.planner.cycle import Cycle, OpSpan
from tandem.runtime.measures import OverlapTotals
from tandem.runtime.overlap_meter import OverlapMeter, StepOverlap
from tandem.runtime.paced.host_truth import HostTruth
from tandem.runtime.paced.perturbed_rates import Perturbation
from tandem.runtime.paced.virtual import VirtualClock, VirtualPool
from tandem.scheduler.strategies.registry import make_strategy
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.hardware import HardwareSpec
from tandem.spec.hardware_file import load_hardware
from tandem.spec.model import ModelSpec

SUITE = "overlap"
GPU_ONLY = "gpu-only"
_DTYPE = DType.FLOAT16
_BLOCK_SIZE = 16
_BATCHED_TOKENS = 4096
_SPREAD = 1.2  # of contexts, as `fill` draws them
_ROUNDS = 8  # of a cohort through the layers, until the middle of which nothing counts
_TOKENS_PER_STEP = 4  # that requests may emit, for each of those rounds' steps: more than they do
_MIN_TOKENS = 4  # of the slowest requests, that a window lasts at least
_MOST_STEPS = 3  # for each of those rounds' steps: so many are counted at most
_CLOSE = 1 - 1e-9
_NO_CACHE = 1  # bytes of cache that the host's pages must exceed: they are not read


@dataclass(frozen=True, slots=True)
class OverlapBench:
    """What every strategy is given.

    Attributes:
        layers: of the model's layers, how many.
        context: tokens that requests have, in the mean.
        device_rows: requests with their KV on the accelerator. host_rows: on the host, for
            strategies that use it.
    """

    hardware: str = "rtx4090-scaled"
    model: str = "llama-3.1-8b"
    layers: int = 8
    context: int = 1024
    device_rows: int = 32
    host_rows: int = 32
    strategies: tuple[str, ...] = tuple(dict.fromkeys((GPU_ONLY, *STRATEGIES[1:], STRATEGIES[0])))

    def __str__(self) -> str:
        return (
            f"{self.hardware}, {self.model} cut to {self.layers} layers, {_DTYPE}, "
            f"{self.device_rows} requests on the accelerator and {self.host_rows} on the host, "
            f"{self.context:,} tokens each"
        )


@dataclass(frozen=True, slots=True)
class StrategyOverlap:
    """One strategy in its steady state.

    Attributes:
        rows: requests by place.
        cycle: one step's period, and what ran in it. layers: when each layer began in it, for
            requests that run through all.
        ways: what the strategy called its choices in the steps that count, the last one first.
        totals: of those steps. tokens_per_s: given out from one token of the slowest requests to
            another of theirs. spread: of the same from each of their tokens to the next.
    """

    strategy: str
    rows: Mapping[str, int]
    cycle: Cycle
    layers: Mapping[int, float]
    ways: tuple[str, ...]
    totals: OverlapTotals
    tokens_per_s: float
    spread: tuple[float, float]


def run_overlap(bench: OverlapBench, report: Callable[[str], None]) -> list[StrategyOverlap]:
    """Every strategy, one after the other; those that cannot be here are left out, with a note.

    Raises:
        ConfigError: an unknown name, or requests that do not fit, or no strategy can be here.
    """
    for strategy in bench.strategies:
        make_strategy(strategy)  # an unknown one is refused before the others run
    whole, hardware = plannable_spec(bench.model), load_hardware(bench.hardware)
    if bench.layers > whole.num_layers:
        raise ConfigError(
            f"{bench.model} has {whole.num_layers} layers; lower --layers", param="layers"
        )
    share = bench.layers / whole.num_layers
    model = replace(
        whole,
        num_layers=bench.layers,
        vocab_size=int(whole.vocab_size * share),
        eos_token_ids=(),
    )
    outcomes: list[StrategyOverlap] = []
    refused: ConfigError | None = None
    for strategy in bench.strategies:
        report(strategy)
        try:
            run = _Run(bench, strategy, model, hardware)
        except ConfigError as error:
            if error.param != "strategy":
                raise
            refused = error
            report(f"{strategy} is left out: {error.message}")
        else:
            outcomes.append(run.outcome())
    if refused is not None and not outcomes:
        raise refused
    return outcomes


def rows_of(bench: OverlapBench, outcomes: Sequence[StrategyOverlap]) -> tuple[BenchRow, ...]:
    """Rows of the common record format."""
    rows: list[BenchRow] = []
    for each in outcomes:
        case, variant, totals = str(bench), f"virtual {each.strategy}", each.totals
        rows += [
            BenchRow(case, variant, "throughput", each.tokens_per_s, "tokens/s", None, each.spread),
            BenchRow(case, variant, "step", totals.step_s / totals.steps, "s"),
        ]
        shares = {
            "accelerator idle": (totals.accel_idle_share, 0.0),
            "CPU attention hidden": (totals.hidden_share, 1.0),
        }
        for metric, (share, bound) in shares.items():
            if share is not None:
                rows.append(BenchRow(case, variant, metric, share, "share", bound))
    return tuple(rows)


class _Run:
    """An engine with one strategy, and what it is seen to do."""

    def __init__(
        self, bench: OverlapBench, strategy: str, model: ModelSpec, hardware: HardwareSpec
    ) -> None:
        self._bench, self._strategy = bench, strategy
        self._steps = _ROUNDS * bench.layers
        self._clock, self._meter = VirtualClock(), OverlapMeter()
        self._ended: list[StepOverlap] = []
        self._meter.on_step(self._ended.append)
        self._ops: deque[ExecutedOp] = deque(maxlen=100 * self._steps * bench.layers)
        self._ways: dict[str, None] = {}
        self._gaps = _Gaps()
        self._engine = self._build(model, hardware)

    def outcome(self) -> StrategyOverlap:
        """Reach the steady state, then watch.

        Raises:
            ConfigError: the requests do not fit.
        """
        rows = {DEVICE: self._bench.device_rows}
        if _uses_host(self._strategy):
            rows[HOST] = self._bench.host_rows
        engine = self._engine
        try:
            self._check_room(rows)
            fill(engine, rows, self._bench.context, max_tokens=_TOKENS_PER_STEP * self._steps)
            self._meter.restart()
            self._ended.clear()
            self._run_steps(self._steps // 2)
            self._ways.clear()
            first, periods = self._periods()
            counted = self._ended[first:]
            totals, shown = OverlapTotals.sum(s.totals for s in counted), _typical(counted)
            self._run_steps(2)  # what began in the step that is shown may end
        finally:
            engine.core.close()
        cycle, layers = self._cycle(shown)
        ways = tuple(way for way in reversed(self._ways) if way)
        per_s = [count / wall_s for count, wall_s in periods]
        tokens, wall_s = (sum(each) for each in zip(*periods, strict=True))
        return StrategyOverlap(
            self._strategy,
            rows,
            cycle,
            layers,
            ways,
            totals,
            tokens / wall_s,
            (min(per_s), max(per_s)),
        )

    def _build(self, model: ModelSpec, hardware: HardwareSpec) -> PacedEngine:
        bench = self._bench
        config = EngineConfig(
            bench.model,
            dtype=str(_DTYPE),
            strategy=self._strategy,
            block_size=_BLOCK_SIZE,
            max_model_len=int(bench.context * _SPREAD) + _TOKENS_PER_STEP * self._steps + 1,
            max_num_seqs=bench.device_rows + bench.host_rows,
            max_num_batched_tokens=max(_BATCHED_TOKENS, int(bench.context * _SPREAD) + 1),
            max_host_seqs=bench.host_rows if _uses_host(self._strategy) else 0,
            enable_prefix_caching=False,
        )
        page = KVPageSpec.of_model(model, dtype=_DTYPE, block_size=_BLOCK_SIZE)
        host = HostTruth(model, page, hardware.host, Perturbation())
        return build_paced_core(
            config,
            model,
            hardware,
            PacedOptions(cores=(0,), cache_bytes=_NO_CACHE),
            strategy=SteadyStart(make_strategy(self._strategy)),
            clock=self._clock,
            pool=VirtualPool(host.duration_s),
            listeners=(self._meter.executed, self._ops.append),
        )

    def _check_room(self, rows: Mapping[str, int]) -> None:
        plan = self._engine.memory.plan
        most = int(self._bench.context * _SPREAD) + _TOKENS_PER_STEP * self._steps
        each = -(-most // _BLOCK_SIZE) + 1
        for place, blocks in ((DEVICE, plan.device_blocks), (HOST, plan.host_blocks)):
            if rows.get(place, 0) * each > blocks:
                raise ConfigError(
                    f"{rows[place]} requests of {most:,} tokens do not fit the {place}'s "
                    f"{blocks * _BLOCK_SIZE:,} tokens of KV; lower --{place}-rows to "
                    f"{blocks // each}, or --context",
                    param=f"{place}_rows",
                )

    def _run_steps(self, count: int) -> None:
        """Until so many more steps have ended."""
        until = len(self._ended) + count
        while len(self._ended) < until:
            self._step()

    def _periods(self) -> tuple[int, list[tuple[int, float]]]:
        """The number of the first step that counts, and of each period between two tokens of the
        slowest requests: tokens that all gave out, and seconds. Cohorts give theirs out in bursts:
        a window that ends between two of them has one more or less, whatever the strategy.
        """
        slowest = self._gaps.longest(self._clock.now())
        most = len(self._ended) + _MOST_STEPS * self._steps
        while len(self._ended) < most and slowest not in self._step():
            pass
        first, periods = len(self._ended), list[tuple[int, float]]()
        begin_s, tokens = self._clock.now(), 0
        most = first + _MOST_STEPS * self._steps
        while len(self._ended) < most:
            emitted = self._step()
            tokens += sum(emitted.values())
            if slowest in emitted:
                periods.append((tokens, self._clock.now() - begin_s))
                begin_s, tokens = self._clock.now(), 0
                if len(periods) >= _MIN_TOKENS and len(self._ended) >= first + self._steps:
                    break
        if not periods:
            raise ConfigError(
                f"{self._strategy}: the slowest requests have no two tokens in {most} steps; "
                "lower --host-rows",
                param="strategy",
            )
        return first, periods

    def _step(self) -> dict[str, int]:
        """One turn of the engine's loop; the tokens that it gives out, by request."""
        core = self._engine.core
        emitted = {each.request_id: len(each.token_ids) for each in core.step() if each.token_ids}
        self._gaps.emitted(emitted, self._clock.now())
        way = core.last_way
        self._ways.pop(way, None)
        self._ways[way] = None
        return emitted

    def _cycle(self, shown: StepOverlap) -> tuple[Cycle, dict[int, float]]:
        period_s = shown.totals.step_s
        begin_s = shown.end_s - period_s
        seen = [
            ran
            for ran in self._ops
            if ran.end_s > max(begin_s, ran.start_s) and ran.start_s < shown.end_s
        ]
        spans = [OpSpan(ran.op, ran.start_s - begin_s, ran.end_s - begin_s) for ran in seen]
        layers = {
            ran.op.layer: ran.start_s - begin_s
            for ran in seen
            if ran.op.part is Part.PRE and _runs_through(ran)
        }
        return Cycle(period_s, tuple(sorted(spans, key=lambda span: span.begin_s))), layers


class _Gaps:
    """Seconds between tokens, by request."""

    def __init__(self) -> None:
        self._last_s: dict[str, float] = {}
        self._gap_s: dict[str, float] = {}

    def emitted(self, names: Iterable[str], now_s: float) -> None:
        """These requests have got tokens."""
        for name in names:
            before_s = self._last_s.get(name)
            if before_s is not None:
                self._gap_s[name] = now_s - before_s
            self._last_s[name] = now_s

    def longest(self, now_s: float) -> str:
        """The request whose tokens are furthest apart, as far as that has been seen."""
        gaps = {n: max(now_s - at_s, self._gap_s.get(n, 0.0)) for n, at_s in self._last_s.items()}
        return max(gaps, key=lambda name: gaps[name])


def _uses_host(strategy: str) -> bool:
    return make_strategy(strategy).uses_host


def _typical(steps: Sequence[StepOverlap]) -> StepOverlap:
    """The last one in which the CPU attends for as long as in the mean: a cohort's tokens are
    between two rounds in some.
    """
    mean_s = sum(step.totals.cpu_attention_s for step in steps) / len(steps)
    return next(s for s in reversed(steps) if s.totals.cpu_attention_s >= mean_s * _CLOSE)


def _runs_through(ran: ExecutedOp) -> bool:
    lanes = ran.program.template.lanes
    return any(lanes[lane].cursor is None for lane in ran.lanes)
