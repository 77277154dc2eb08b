"""Build an engine core: resolve devices and sizes, load the model, put everything together."""

from dataclasses import dataclass
from pathlib import Path

import torch

from tandem.devices.cuda import cuda_available, free_bytes, open_cuda
from tandem.engine.core import EngineCore
from tandem.engine.dtype_choice import choose_dtype
from tandem.engine.memory_plan import Capacities, MemoryPlan, plan_memory
from tandem.engine.stats_collector import StatsCollector
from tandem.engine.warm_up import measure_workspace
from tandem.kernels import native
from tandem.memory.peaks import read_host_memory
from tandem.memory.pool import BlockPool
from tandem.models.config import read_model_spec
from tandem.models.load import load_model
from tandem.models.model import Model
from tandem.models.resolve import resolve_model
from tandem.plan.online import OnlinePlan
from tandem.runtime.assemble import Assembled, MachineSizes, on_cuda, on_exact_emulator, on_host
from tandem.scheduler.config import SchedulerConfig
from tandem.scheduler.scheduler import Scheduler
from tandem.scheduler.strategies.registry import make_strategy
from tandem.spec.accelerator import AcceleratorChoice, parse_accelerator
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import weight_bytes
from tandem.spec.progress import Progress, no_progress
from tandem.spec.tier import Tier
from tandem.spec.units import GIB, parse_size

_AUTO_HOST_SHARE = 0.8
_EMULATED_DEFAULT_BYTES = 2 * GIB


@dataclass(frozen=True, slots=True)
class Target:
    """The resolved device and the memory that may be used."""

    choice: AcceleratorChoice
    device: torch.device
    capacities: Capacities


def build_engine_core(
    config: EngineConfig, progress: Progress = no_progress, *, check: bool = False
) -> EngineCore:
    """Load the model and build the engine around it.

    Args:
        check: verify conservation after every event (tests).

    Raises:
        TandemError: the model cannot be loaded, a flag is wrong, or memory does not suffice.
    """
    directory = resolve_model(config.model)
    spec = read_model_spec(directory)
    target = resolve_target(config)
    host_maths = target.device.type == "cpu"
    free = read_host_memory().available_bytes
    dtype = choose_dtype(config.dtype, spec, host_maths=host_maths, available_bytes=free)
    notes = ((dtype.note,) if dtype.note else ()) + host_kernel_notes(spec)
    size = weight_bytes(spec, dtype.dtype)
    memory = plan_memory(config, spec, dtype.dtype, size, target.capacities, notes)
    model = _load(directory, config, dtype.dtype, target.device, progress)
    if target.choice.kind == "cuda":
        measured = measure_workspace(model, config, memory)
        memory = plan_memory(config, spec, dtype.dtype, size, target.capacities, notes, measured)
    assembled = assemble(config, model, memory, target.choice)
    return core_of(config, spec, memory, assembled, dtype.dtype, check=check)


def host_kernel_notes(spec: ModelSpec) -> tuple[str, ...]:
    """Says so if attention in host memory is left to the reference kernels.

    Raises:
        ConfigError: TANDEM_CPU_ISA cannot be followed.
    """
    reason = native.reason_against(spec.head_dim)
    if reason is not None:
        return (reason,)
    native.choose_isa()
    return ()


def resolve_target(config: EngineConfig) -> Target:
    """Find the device that `--accelerator` means, and how much memory may be used.

    Raises:
        ConfigError: there is no such device.
    """
    choice = parse_accelerator(config.accelerator)
    if choice.kind == "auto":
        choice = AcceleratorChoice("cuda" if cuda_available() else "none")
    available = int(read_host_memory().available_bytes * _AUTO_HOST_SHARE)
    host = (
        available
        if config.cpu_memory == "auto"
        else parse_size(config.cpu_memory, param="cpu_memory")
    )
    if choice.kind == "none":
        if config.gpu_memory != "auto":
            raise ConfigError(
                "--gpu-memory has no meaning without an accelerator; use --cpu-memory",
                param="gpu_memory",
            )
        return Target(choice, torch.device("cpu"), Capacities(host, 0, "host"))
    if choice.kind == "cuda":
        device = open_cuda(choice.index)
        margin = parse_size(config.gpu_margin, param="gpu_margin")
        size = free_bytes(device) - margin
        if config.gpu_memory != "auto":
            size = parse_size(config.gpu_memory, param="gpu_memory")
        return Target(choice, device, Capacities(size, host))
    if choice.mode == "paced":
        raise ConfigError(
            "the paced emulator runs under `tandem bench`, it returns no text; use emulated:exact",
            param="accelerator",
        )
    size = _EMULATED_DEFAULT_BYTES
    if config.gpu_memory != "auto":
        size = parse_size(config.gpu_memory, param="gpu_memory")
    return Target(choice, torch.device("cpu"), Capacities(size, host, real=False))


def _load(
    directory: Path, config: EngineConfig, dtype: DType, device: torch.device, progress: Progress
) -> Model:
    def report(done_bytes: int, total_bytes: int, name: str) -> None:
        del name
        progress("loading weights", done_bytes, total_bytes)

    load_format = "dummy" if config.load_format == "dummy" else "auto"
    return load_model(directory, dtype, device, load_format, config.seed, report)


def assemble(
    config: EngineConfig, model: Model, memory: MemoryPlan, choice: AcceleratorChoice
) -> Assembled:
    """Allocate what the plan says and make the executor."""
    plan = memory.plan
    emulated = choice.kind == "emulated"
    sizes = MachineSizes(
        page=memory.page,
        device_blocks=plan.device_blocks,
        host_blocks=plan.host_blocks,
        max_rows=config.max_num_seqs,
        workspace_bytes=memory.workspace_bytes if emulated else None,
    )
    if choice.kind == "cuda":
        return on_cuda(model, sizes)
    if emulated:
        return on_exact_emulator(model, sizes, choice.seed)
    return on_host(model, sizes)


def core_of(
    config: EngineConfig,
    spec: ModelSpec,
    memory: MemoryPlan,
    assembled: Assembled,
    dtype: DType,
    *,
    check: bool = False,
) -> EngineCore:
    """Scheduler, collector and loop over an assembled executor."""
    plan = memory.plan
    pools = {
        Tier.DEVICE: BlockPool(Tier.DEVICE, plan.device_blocks),
        Tier.HOST: BlockPool(Tier.HOST, plan.host_blocks),
    }
    scheduler = Scheduler(
        scheduler_config(plan, config, spec),
        make_strategy(plan.strategy),
        pools,
        vocab_size=spec.vocab_size,
        eos_ids=spec.eos_token_ids,
        enable_prefix_caching=config.enable_prefix_caching,
    )
    _record_actual(memory, assembled)
    collector = StatsCollector(
        scheduler, plan, memory.page, memory.ledger, assembled.measures, str(dtype)
    )
    return EngineCore(scheduler, assembled.executor, collector, overlap=config.overlap, check=check)


def scheduler_config(plan: OnlinePlan, config: EngineConfig, spec: ModelSpec) -> SchedulerConfig:
    """The plan's numbers and the user's choices as the scheduler takes them."""
    return SchedulerConfig(
        num_layers=spec.num_layers,
        max_model_len=plan.max_model_len,
        block_size=plan.block_size,
        max_num_seqs=plan.max_num_seqs,
        max_num_batched_tokens=plan.max_num_batched_tokens,
        max_num_queued_reqs=config.max_num_queued_reqs,
        kv_placement=config.kv_placement,
        preemption_mode=config.preemption_mode,
        launch_ahead_steps=plan.launch_ahead_steps,
        max_cohorts=plan.max_cohorts,
        max_cohort_rows=plan.max_cohort_rows,
        max_join_wait_s=plan.max_join_wait_s,
        seed=config.seed,
    )


def _record_actual(memory: MemoryPlan, assembled: Assembled) -> None:
    ledger, kv = memory.ledger, assembled.machine.kv
    place = next(entry.location for entry in ledger.entries if entry.label == "weights")
    ledger.record_actual(place, "weights", assembled.weights_bytes)
    for entry in ledger.entries:
        if entry.label == "kv pool":
            tier = (
                Tier.HOST if entry.location == "host" and memory.plan.host_blocks else Tier.DEVICE
            )
            ledger.record_actual(entry.location, entry.label, kv.size_bytes(tier))
