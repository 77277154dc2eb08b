"""Build an engine on the paced emulator: for benches and tests, since it returns no text."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from tandem.cost.expert_use import ExpertUse
from tandem.cost.step_prices import StepPrices
from tandem.devices.cpu_cache import last_level_cache_bytes
from tandem.engine.build import prices_of, scheduler_config
from tandem.engine.capacities import Capacities
from tandem.engine.core import EngineCore
from tandem.engine.expert_hits_file import read_expert_use
from tandem.engine.memory_plan import MemoryPlan, plan_memory
from tandem.engine.plan_options import planned_file
from tandem.engine.planned import plan_note, require_as_planned
from tandem.engine.stats_collector import StatsCollector
from tandem.memory.page import KVPageSpec
from tandem.memory.peaks import read_host_memory
from tandem.memory.pool import BlockPool
from tandem.plan.online import OnlinePlan
from tandem.plan.sweep_layers import SweepChoice
from tandem.plan.weights import disk_layers
from tandem.runtime.paced.choices import PacedChoices
from tandem.runtime.paced.costs import PacedCosts
from tandem.runtime.paced.executor import PacedClock, PacedExecutor, RealClock
from tandem.runtime.paced.gauges import Gauges
from tandem.runtime.paced.host import Aliasing, PacedHost, plan_aliasing
from tandem.runtime.paced.host_layers import PacedHostLayers
from tandem.runtime.paced.perturbed_rates import Perturbation
from tandem.runtime.paced.pool import HostPool, WorkerPool
from tandem.runtime.paced.tokens import SyntheticTokens
from tandem.runtime.paced.truth import PacedTruth
from tandem.scheduler.scheduler import Scheduler
from tandem.scheduler.strategies.base import Strategy
from tandem.scheduler.strategies.registry import make_strategy
from tandem.spec.accelerator import AcceleratorChoice
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import DType, parse_dtype
from tandem.spec.errors import ConfigError
from tandem.spec.hardware import HardwareSpec
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision
from tandem.spec.tier import Tier
from tandem.spec.units import format_size, parse_size

_HOST_PAGES_SHARE = 0.6
_PACED = AcceleratorChoice("emulated", mode="paced")


@dataclass(frozen=True, slots=True)
class PacedOptions:
    """What a paced run may vary beside the engine's configuration.

    Attributes:
        seed: of pages, queries and cores' data.
        perturbation: how the accelerator's truth deviates from its description.
        contention: DMA delays CPU attention (modelled).
        cores: for CPU attention; None leaves the choice to the operating system.
        cache_bytes: the last-level cache; None asks sysfs.
        plan: changes the plan before the engine is built (cohorts, bounds).
        expert_use: as it is, whatever the placement is made by; None: as `expert_hits` says, or
            uniform.
    """

    seed: int = 0
    perturbation: Perturbation = field(default_factory=Perturbation)
    contention: bool = True
    cores: tuple[int, ...] | None = None
    cache_bytes: int | None = None
    plan: Callable[[OnlinePlan], OnlinePlan] = lambda plan: plan
    expert_use: ExpertUse | None = None


@dataclass(frozen=True, slots=True)
class PacedEngine:
    """An engine on the paced emulator, and the emulator itself."""

    core: EngineCore
    executor: PacedExecutor
    memory: MemoryPlan


class PacedMeasures:
    """The paced emulator's word on itself: weights and pages are counted, not allocated."""

    def __init__(self, hardware: HardwareSpec, accounted_bytes: int) -> None:
        self._hardware = hardware
        self._accounted = accounted_bytes

    @property
    def description(self) -> str:
        """Begins with `paced emulator`, so that no record can be mistaken for a measurement."""
        size = format_size(self._accounted)
        return f"paced emulator of {self._hardware.name}, {size} accounted"

    def peak_bytes(self) -> int:
        """What is accounted, from the start to the end."""
        return self._accounted

    def workspace_bytes(self) -> None:
        """Accounted, not allocated."""

    def staging_bytes(self) -> None:
        """Not counted: the host's part of the paced emulator keeps buffers of its own."""


def build_paced_core(
    config: EngineConfig,
    spec: ModelSpec,
    hardware: HardwareSpec,
    options: PacedOptions | None = None,
    *,
    strategy: Strategy | None = None,
    prices: StepPrices | None = None,
    clock: PacedClock | None = None,
    pool: HostPool | None = None,
) -> PacedEngine:
    """An engine whose accelerator keeps to `hardware`'s times and whose CPU really works.

    Weights and KV on the device are accounted, not allocated; tokens are synthetic and never end a
    sequence, so that requests run to their `max_tokens`.

    Args:
        config: `model` is a label only; `gpu_memory` of `auto` is the description's. Its `plan`
            is executed as by any engine.
        strategy: takes the place of the one that `config` names.
        prices: what the scheduler knows of steps' times; None: as the description has them.
        clock, pool: virtual ones make a run deterministic (tests); by default real.

    Raises:
        ConfigError: the weights do not fit, or a flag is wrong.
    """
    options = options or PacedOptions()
    dtype = spec.dtype if config.dtype == "auto" else parse_dtype(config.dtype)
    for param in ("kv_cache_dtype", "cpu_kv_dtype"):
        if (kv := getattr(config, param)) not in ("auto", str(dtype)):
            raise ConfigError(
                f"--{param.replace('_', '-')} {kv} cannot be paced, because its costs are not "
                "modelled; use auto",
                param=param,
            )
    if config.save_expert_hits is not None:
        raise ConfigError(
            "--save-expert-hits cannot be paced, because tokens are synthetic; leave it out",
            param="save_expert_hits",
        )
    if config.quantization not in ("auto", "none"):
        raise ConfigError(
            f"--quantization {config.quantization} cannot be paced, because its costs are not "
            "modelled; use auto",
            param="quantization",
        )
    memory = _plan(config, spec, dtype, hardware, options)
    if options.expert_use is None and config.expert_hits is not None:
        options = replace(options, expert_use=read_expert_use(Path(config.expert_hits), spec))
    executor = _executor(spec, memory, hardware, options, clock, pool)
    plan = memory.plan
    scheduler = Scheduler(
        scheduler_config(plan, config, spec),
        strategy or make_strategy(plan.strategy),
        {
            Tier.DEVICE: BlockPool(Tier.DEVICE, plan.device_blocks),
            Tier.HOST: BlockPool(Tier.HOST, plan.host_blocks),
        },
        vocab_size=spec.vocab_size,
        enable_prefix_caching=config.enable_prefix_caching,
        prices=prices or prices_of(plan, spec, Precision.uniform(dtype), memory.page, hardware),
    )
    accounted = sum(e.predicted_bytes for e in memory.ledger.entries if e.location == "device")
    collector = StatsCollector(
        scheduler,
        plan,
        memory.page,
        memory.ledger,
        PacedMeasures(hardware, accounted),
        str(dtype),
    )
    core = EngineCore(scheduler, executor, collector, overlap=config.overlap)
    return PacedEngine(core, executor, memory)


def _plan(
    config: EngineConfig,
    spec: ModelSpec,
    dtype: DType,
    hardware: HardwareSpec,
    options: PacedOptions,
) -> MemoryPlan:
    device = hardware.accelerator.memory_bytes
    if config.gpu_memory != "auto":
        device = parse_size(config.gpu_memory, param="gpu_memory")
    host = hardware.host.memory_bytes
    if config.cpu_memory != "auto":
        host = parse_size(config.cpu_memory, param="cpu_memory")
    note = "paced emulator: times are emulated, tokens are synthetic"
    capacities = Capacities(device, host, real=False)
    precision = Precision.uniform(dtype)
    planned, notes = planned_file(config, spec), (note,)
    if planned is not None:
        require_as_planned(planned, precision, _PACED)
        notes = (plan_note(str(config.plan), planned), note)
    memory = plan_memory(
        config,
        spec,
        precision,
        capacities,
        notes,
        hardware=hardware,
        planned=None if planned is None else planned.online,
    )
    if disk_layers(memory.plan.weights) and hardware.host.disk_bytes_per_s is None:
        raise ConfigError(
            f"layers would be read from disk, whose rate the description of {hardware.name} lacks; "
            "raise --cpu-memory, or add disk_bytes_per_s to its [host]",
            param="cpu_memory",
        )
    return replace(memory, plan=options.plan(memory.plan))


def _executor(
    spec: ModelSpec,
    memory: MemoryPlan,
    hardware: HardwareSpec,
    options: PacedOptions,
    clock: PacedClock | None,
    pool: HostPool | None,
) -> PacedExecutor:
    page, blocks = memory.page, memory.plan.host_blocks
    aliasing = _aliasing(page, blocks, options)
    sweeps = SweepChoice.of_plan(memory.plan.weights, memory.plan.cpu_rules)
    use = options.expert_use
    truth = PacedTruth(spec, page, hardware, options.perturbation, sweeps.experts, use)
    host = PacedHost(spec, page, blocks, aliasing, options.seed, options.cores)
    if pool is None:
        host.draw_pages()
    dram = hardware.host.memory_bandwidth_bytes_per_s if options.contention else None
    whole, mlps = len(sweeps.ever_on_cpu), len(sweeps.mlps_ever_on_cpu)
    layers = None
    if sweeps.uses_cpu:
        layers = PacedHostLayers(
            spec,
            page.float_type,
            whole + mlps,
            aliasing.cache_bytes,
            host.pool,
            options.seed,
            mlps_only=not whole,
            choices=_choices(spec, sweeps, options),
        )
    return PacedExecutor(
        PacedCosts(spec, page, truth, host, layers),
        SyntheticTokens(spec),
        Gauges(dram, aliasing),
        pool or WorkerPool(options.cores),
        clock or RealClock(),
        hardware.accelerator.launch_latency_s,
    )


def _choices(spec: ModelSpec, sweeps: SweepChoice, options: PacedOptions) -> PacedChoices | None:
    """Of experts, where something is known of their use, or routers are not the CPU's."""
    if spec.experts is None or not (options.expert_use or sweeps.experts):
        return None
    use = options.expert_use or ExpertUse.uniform(spec)
    return PacedChoices(spec.experts, sweeps.experts, use, options.seed)


def _aliasing(page: KVPageSpec, blocks: int, options: PacedOptions) -> Aliasing:
    cache = options.cache_bytes
    if cache is None:
        cache = last_level_cache_bytes()
    limit = int(read_host_memory().available_bytes * _HOST_PAGES_SHARE)
    return plan_aliasing(page, blocks, cache, limit)
