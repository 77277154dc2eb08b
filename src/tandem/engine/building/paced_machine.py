"""The paced emulator as a machine that an engine runs on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tandem.cost.expert_use import ExpertUse
from tandem.devices.cpu_cache import last_level_cache_bytes
from tandem.engine.sizing.capacities import Capacities
from tandem.memory.ledger import MemoryLedger
from tandem.memory.page import KVPageSpec
from tandem.memory.peaks import read_host_memory
from tandem.plan.executed_op import OpListener
from tandem.plan.online import OnlinePlan
from tandem.plan.sweep_layers import SweepChoice
from tandem.plan.weights import EmbeddingHome, WeightPlacement, disk_layers
from tandem.runtime.overlap_meter import OverlapMeter
from tandem.runtime.paced.choices import PacedChoices
from tandem.runtime.paced.costs import PacedCosts
from tandem.runtime.paced.executor import PacedClock, PacedExecutor
from tandem.runtime.paced.gauges import Gauges
from tandem.runtime.paced.host import Aliasing, PacedHost, plan_aliasing
from tandem.runtime.paced.host_layers import PacedHostLayers
from tandem.runtime.paced.journal import ProgramJournal
from tandem.runtime.paced.perturbed_rates import Perturbation
from tandem.runtime.paced.pool import HostPool, WorkerPool
from tandem.runtime.paced.tokens import SyntheticTokens
from tandem.runtime.paced.truth import PacedTruth
from tandem.runtime.paced.types import PacedTypes
from tandem.spec.accelerator import AcceleratorChoice
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import DType, parse_dtype
from tandem.spec.errors import ConfigError
from tandem.spec.hardware import HardwareSpec
from tandem.spec.model import ModelSpec
from tandem.spec.tier import Tier
from tandem.spec.units import format_size, parse_size

_HOST_PAGES_SHARE = 0.6
PACED = AcceleratorChoice("emulated", mode="paced")
PACED_NOTE = "paced emulator: times are emulated, tokens are synthetic"


@dataclass(frozen=True, slots=True)
class PacedOptions:
    """What a paced run may vary beside the engine's configuration.

    Attributes:
        seed: of pages, queries and cores' data.
        perturbation: how the accelerator's truth deviates from its description.
        contention: copies and the CPU slow each other down (modelled).
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
class PacedSizes:
    """What the emulator must know of an engine's memory.

    Attributes:
        host_blocks: of KV on the host, all layers.
        sweeps: where layers are computed.
        embedding: where token embeddings lie.
        types: what is in few bits; None: nothing.
    """

    page: KVPageSpec
    host_blocks: int
    sweeps: SweepChoice
    embedding: EmbeddingHome = "resident"
    types: PacedTypes | None = None


class PacedMeasures:
    """The paced emulator's word on itself: weights and pages are counted, not allocated."""

    def __init__(self, hardware: HardwareSpec, ledger: MemoryLedger, overlap: OverlapMeter) -> None:
        self._hardware, self._overlap = hardware, overlap
        entries = [entry for entry in ledger.entries if entry.location == "device"]
        self._accounted = sum(entry.predicted_bytes for entry in entries)

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

    def pinned_bytes(self) -> int:
        """Copies are of this process's memory."""
        return 0

    @property
    def overlap(self) -> OverlapMeter:
        """By the emulator's ledgers."""
        return self._overlap


def paced_dtype(config: EngineConfig, spec: ModelSpec) -> DType:
    """Of weights, activations and KV alike.

    Raises:
        ConfigError: other types are asked for, or what synthetic tokens cannot give.
    """
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
    return dtype


def require_disk_rate(weights: tuple[WeightPlacement, ...], hardware: HardwareSpec) -> None:
    """Where layers are read from disk, its rate must be known.

    Raises:
        ConfigError: it is not.
    """
    if disk_layers(weights) and hardware.host.disk_bytes_per_s is None:
        raise ConfigError(
            f"layers would be read from disk, whose rate the description of {hardware.name} lacks; "
            "raise --cpu-memory, or add disk_bytes_per_s to its [host]",
            param="cpu_memory",
        )


def paced_capacities(config: EngineConfig, hardware: HardwareSpec) -> Capacities:
    """Memory that may be used: the description's, or as the configuration says.

    Raises:
        ConfigError: a size that cannot be read.
    """
    device, host = hardware.accelerator.memory_bytes, hardware.host.memory_bytes
    if config.gpu_memory != "auto":
        device = parse_size(config.gpu_memory, param="gpu_memory")
    if config.cpu_memory != "auto":
        host = parse_size(config.cpu_memory, param="cpu_memory")
    return Capacities(device, host, real=False)


def paced_executor(
    spec: ModelSpec,
    sizes: PacedSizes,
    hardware: HardwareSpec,
    options: PacedOptions,
    clock: PacedClock,
    pool: HostPool | None,
    listeners: Sequence[OpListener] = (),
    journal: ProgramJournal | None = None,
) -> PacedExecutor:
    """The emulator of a machine.

    Args:
        clock, pool: virtual ones take no real time. No pool: a real one.
        listeners: told of every operation whose end is known.
        journal: of what is submitted and told; None: nothing is kept.
    """
    page, blocks, sweeps = sizes.page, sizes.host_blocks, sizes.sweeps
    types = sizes.types or PacedTypes.plain(page.float_type)
    # few bits are timed only, whatever is drawn in their place
    drawn = replace(page, dtype=types.precision.activations)
    aliasing = _aliasing(page.on(Tier.HOST), blocks, options)
    use = options.expert_use
    truth = PacedTruth(
        spec,
        page,
        hardware,
        options.perturbation,
        sweeps.experts,
        use,
        sizes.embedding,
        sweeps.cpu_columns,
        sweeps.usual.streamed.mlps,
        types,
        cpu_attention_maps=sweeps.cpu_attention_maps,
    )
    host = PacedHost(spec, drawn, blocks, aliasing, options.seed, options.cores)
    if pool is None:
        host.draw_pages()
    shared = hardware.host.pool_bytes_per_s if options.contention else None
    whole, mlps = len(sweeps.ever_on_cpu), len(sweeps.mlps_ever_on_cpu)
    layers = None
    if sweeps.uses_cpu:
        divided = 0
        if sweeps.cpu_columns:
            divided = len(sweeps.usual.streamed.layers) - len(sweeps.usual.on_disk)
        layers = PacedHostLayers(
            spec,
            types.precision.activations,
            whole + mlps + divided,
            aliasing.cache_bytes,
            host.pool,
            options.seed,
            mlps_only=not (whole or sweeps.cpu_attention_maps),
            columns=sweeps.cpu_columns,
            attention_maps=sweeps.cpu_attention_maps,
            choices=_choices(spec, sweeps, options),
        )
    return PacedExecutor(
        PacedCosts(spec, page, truth, host, layers, types),
        SyntheticTokens(spec),
        Gauges(aliasing, contention=options.contention),
        pool or WorkerPool(options.cores),
        clock,
        hardware.accelerator.launch_latency_s,
        shared,
        listeners,
        journal,
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
