"""From configuration and capacities to an `OnlinePlan`: how large everything is. Pure."""

from dataclasses import dataclass
from pathlib import Path

from tandem.engine.cpu_rules import choose_cpu_rules
from tandem.engine.disk_choice import (
    check_disk_placement,
    choose_disk_placement,
    least_host_bytes,
)
from tandem.engine.kv_reserve import kv_reserve
from tandem.engine.weight_notes import weight_notes
from tandem.engine.weight_placement import (
    WeightSizes,
    all_resident,
    choose_placement,
    read_placement,
    refuse_fixed,
)
from tandem.memory.budget import MemoryBudget
from tandem.memory.ledger import MemoryLedger
from tandem.memory.page import KVPageSpec
from tandem.memory.sizing import PoolSizes, describe_block, size_pools
from tandem.memory.workspace import KERNEL_SCRATCH_BYTES, LargestStep, StepMemory, workspace_bytes
from tandem.plan.disk_slots import slots_bytes
from tandem.plan.online import OnlinePlan
from tandem.plan.sweep_layers import SweepChoice
from tandem.plan.weights import Home, WeightPlacement, homes_by_layer
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.hardware import HardwareSpec
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision
from tandem.spec.tier import Tier
from tandem.spec.units import format_size

_SLOT_BYTES = 8  # a sampled token id, int64
_MAX_COHORTS, _MAX_COHORT_ROWS = 1, 256
STRATEGIES = ("auto", "gpu-only", "ride-along", "rendezvous")


@dataclass(frozen=True, slots=True)
class Capacities:
    """Memory that Tandem may use.

    Attributes:
        device_bytes: on the accelerator; with no accelerator, of host DRAM for everything.
        host_bytes: of host DRAM for the host tier's KV; 0 with no accelerator.
        real: kernels take scratch memory from the device (not so on the emulated one).
        process_bytes: what the process took before anything was loaded: Python and its libraries.
    """

    device_bytes: int
    host_bytes: int
    device_location: str = "device"
    real: bool = True
    process_bytes: int = 0


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The plan and the predictions behind it."""

    plan: OnlinePlan
    page: KVPageSpec
    ledger: MemoryLedger
    workspace_bytes: int


def plan_memory(
    config: EngineConfig,
    spec: ModelSpec,
    precision: Precision,
    capacities: Capacities,
    notes: tuple[str, ...] = (),
    measured_workspace_bytes: int | None = None,
    placement: tuple[WeightPlacement, ...] | None = None,
    hardware: HardwareSpec | None = None,
) -> MemoryPlan:
    """Weights first, then workspace, and KV blocks in what is left; see `OnlinePlan`.

    Args:
        measured_workspace_bytes: from a warm-up at maximum shape; takes the prediction's place.
        placement: of the weights, where it has been decided already.
        hardware: rates by which to decide which layers the CPU computes; None: not known.

    Raises:
        ConfigError: the weights do not fit, or no request of the wanted length ever could.
    """
    _check(config, capacities)
    page = KVPageSpec.of_model(
        spec, dtype=precision.kv, block_size=config.block_size, host_dtype=precision.host_kv
    )
    largest = largest_step(config, capacities)
    workspace = workspace_bytes(spec, precision.activations, largest)
    slots = config.max_num_seqs * _SLOT_BYTES
    used = {"workspace": workspace, "slot table": slots}
    if measured_workspace_bytes is not None:
        used["workspace"] = measured_workspace_bytes
    elif capacities.real:
        used["kernel scratch"] = KERNEL_SCRATCH_BYTES
    wanted = min(config.max_model_len or spec.max_positions, spec.max_positions)
    if config.max_model_len is not None and config.max_model_len > spec.max_positions:
        raise ConfigError(
            f"max_model_len {config.max_model_len} is beyond the model's {spec.max_positions} "
            "positions; lower it",
            param="max_model_len",
        )
    sizes = WeightSizes.of(spec, precision)
    room = MemoryBudget(capacities.device_location, capacities.device_bytes, used)
    if placement is None:
        home = _home_elsewhere(config, hardware)
        placement = _placement(config, sizes, room, capacities, page, wanted, home)
    _check_placement(config, placement)
    rules = ()
    if hardware is not None:
        rules = choose_cpu_rules(placement, spec, precision, largest.tokens, hardware)
    if sizes.disk_bytes(placement):
        used = {"weight slots": slots_bytes(sizes.layer), **used}
    used = {"weights": sizes.device_bytes(placement), **used}
    host_used = {"weights": sizes.host_bytes(placement)}
    device = MemoryBudget(capacities.device_location, capacities.device_bytes, used)
    host = MemoryBudget("host", capacities.host_bytes, host_used)
    cap = config.max_num_seqs * page.blocks_for_tokens(wanted)
    pools = size_pools(page, device, host, max_tokens=1, max_blocks=cap)
    max_len, length_notes = _max_len(config, page, pools, wanted, device, host)
    plan = OnlinePlan(
        strategy=_strategy(config, pools),
        weights=placement,
        device_blocks=pools.device_blocks,
        host_blocks=pools.host_blocks,
        block_size=config.block_size,
        max_model_len=max_len,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_cohorts=_MAX_COHORTS,
        max_cohort_rows=_MAX_COHORT_ROWS,
        launch_ahead_steps=2 if config.overlap else 1,
        cpu_rules=rules,
        notes=notes + weight_notes(sizes, placement, rules) + length_notes,
    )
    beside = {"process": capacities.process_bytes}
    if capacities.host_bytes:
        on_cpu = SweepChoice.of_plan(placement, rules).cpu_tokens
        on_cpu = largest.tokens + largest.cohort_tokens if on_cpu is None else on_cpu
        beside |= _host_overheads(spec, precision.activations, largest, on_cpu)
    ledger = _ledger(plan, page, used, host_used, beside, capacities)
    if sizes.disk_bytes(placement):
        ledger.reserve("disk", "weights", sizes.disk_bytes(placement))
    return MemoryPlan(plan, page, ledger, workspace)


def _placement(
    config: EngineConfig,
    sizes: WeightSizes,
    room: MemoryBudget,
    capacities: Capacities,
    page: KVPageSpec,
    wanted: int,
    home: Home,
) -> tuple[WeightPlacement, ...]:
    """Of the weights: the user's, or the simplest that fits, with `home` for what does not."""
    if config.placement is not None:
        placement = read_placement(Path(config.placement), sizes.layers)
        check_disk_placement(placement, host_only=capacities.device_location == "host")
        refuse_fixed(sizes, placement)
        if sizes.host_bytes(placement) and not capacities.host_bytes:
            raise ConfigError(
                "layers can be streamed to an accelerator, or computed on the CPU beside it, only "
                "from host memory; use --accelerator cuda or emulated, and --cpu-memory above 0",
                param="placement",
            )
        return placement
    on_device = config.strategy == "gpu-only" or config.kv_placement == "device"
    whole = config.max_model_len is not None and (on_device or not capacities.host_bytes)
    reserve = kv_reserve(page, wanted, capacities.device_bytes, whole=whole)
    if capacities.device_location == "host":
        left = room.left_bytes - least_host_bytes(sizes)
        return choose_disk_placement(sizes, room, reserve.of(left))
    if not capacities.host_bytes:
        return all_resident(sizes.layers)
    left = room.left_bytes - sizes.least_device_bytes(home)
    if home == "host" and left < reserve.least_bytes:  # no room for layers on their way
        home = "cpu"
        left = room.left_bytes - sizes.least_device_bytes(home)
    host = MemoryBudget("host", capacities.host_bytes)
    return choose_placement(sizes, room, host, reserve.of(left), home)


def _home_elsewhere(config: EngineConfig, hardware: HardwareSpec | None) -> Home:
    """Of layers that are not resident: what the user wants, or what each step is predicted to."""
    if config.host_layers == "cpu":
        return "cpu"
    return "host" if config.host_layers == "auto" and hardware is not None else "streamed"


def _check_placement(config: EngineConfig, placement: tuple[WeightPlacement, ...]) -> None:
    homes = homes_by_layer(placement).values()
    if config.strategy == "rendezvous" and all(home == "cpu" for home in homes):
        raise ConfigError(
            "--strategy rendezvous needs a layer on the accelerator, at which cohorts leave a "
            "sweep and join another, but all are placed on the CPU; use --strategy ride-along",
            param="strategy",
        )


def largest_step(config: EngineConfig, capacities: Capacities) -> LargestStep:
    """The shapes that a step may reach; a sequence in a cohort is none of the main lane's."""
    cohorts = _MAX_COHORTS * _MAX_COHORT_ROWS if config.strategy == "rendezvous" else 0
    both_tiers = capacities.host_bytes > 0 and config.strategy != "gpu-only"
    on_gpu = capacities.real and capacities.device_location == "device"
    return LargestStep(
        tokens=config.max_num_batched_tokens,
        rows=config.max_num_seqs,
        cohort_tokens=min(cohorts, config.max_num_seqs),
        tiers=2 if both_tiers else 1,
        device_type="cuda" if on_gpu else "cpu",
    )


def _check(config: EngineConfig, capacities: Capacities) -> None:
    if config.strategy not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        raise ConfigError(
            f"unknown strategy '{config.strategy}'; use one of: {known}", param="strategy"
        )
    if config.max_num_batched_tokens < config.max_num_seqs:
        raise ConfigError(
            f"max_num_batched_tokens ({config.max_num_batched_tokens}) must be at least "
            f"max_num_seqs ({config.max_num_seqs}), so that every running "
            "sequence can get a token in a step",
            param="max_num_batched_tokens",
        )
    needs_host = config.kv_placement in ("host", "split") or config.strategy == "rendezvous"
    if needs_host and capacities.host_bytes == 0:
        raise ConfigError(
            f"--kv-placement {config.kv_placement} --strategy {config.strategy} needs a host KV "
            "tier beside an accelerator; use --accelerator cuda or emulated, and "
            "--cpu-memory above 0",
            param="kv_placement",
        )
    if config.strategy == "gpu-only" and config.kv_placement in ("host", "split"):
        raise ConfigError(
            f"--strategy gpu-only cannot attend KV on the host, but --kv-placement is "
            f"{config.kv_placement}; use --strategy ride-along",
            param="kv_placement",
        )


def _strategy(config: EngineConfig, sizes: PoolSizes) -> str:
    """`auto` is device first; what does not fit rides along on the host, if there is one."""
    if config.strategy != "auto":
        return config.strategy
    return "ride-along" if sizes.host_blocks else "gpu-only"


def _usable(config: EngineConfig, sizes: PoolSizes) -> int:
    """Blocks that one request may use, alone in the engine."""
    if config.strategy == "gpu-only" or config.kv_placement == "device":
        return sizes.device_blocks
    return sizes.host_blocks if config.kv_placement == "host" else sizes.total_blocks


def _max_len(
    config: EngineConfig,
    page: KVPageSpec,
    sizes: PoolSizes,
    wanted: int,
    device: MemoryBudget,
    host: MemoryBudget,
) -> tuple[int, tuple[str, ...]]:
    """The longest request to accept: what was asked for, or what fits, and then a note."""
    # the last token of a sequence needs no KV
    fitting = _usable(config, sizes) * page.block_size + 1
    if fitting >= wanted:
        return wanted, ()
    if config.max_model_len is None and fitting > page.block_size:
        note = (
            f"context limited to {fitting} of {wanted} tokens by memory for the KV cache "
            f"({sizes.device_blocks} device and {sizes.host_blocks} host blocks of "
            f"{page.block_size})"
        )
        return fitting, (note,)
    left = format_size(max(0, device.left_bytes) + max(0, host.left_bytes))
    raise ConfigError(
        f"memory too small: one request of {wanted} tokens needs "
        f"{page.blocks_for_tokens(wanted - 1)} KV blocks of {describe_block(page)}, "
        "but "
        f"only {_usable(config, sizes)} fit in the {left} left beside {device.describe_used()}; "
        "raise --gpu-memory or --cpu-memory, or lower --max-model-len",
        param="max_model_len",
    )


def _host_overheads(
    spec: ModelSpec, dtype: DType, step: LargestStep, cpu_tokens: int
) -> dict[str, int]:
    """What the host's part of a step takes beside the KV: activations on their way, scratch.

    Args:
        cpu_tokens: most tokens of a step in which the CPU computes whole layers.
    """
    memory = StepMemory(spec, dtype)
    per_token = memory.qkv_token_bytes + memory.partial_token_bytes
    tokens = step.tokens + step.cohort_tokens
    sizes = {"staging": tokens * per_token, "attention scratch": KERNEL_SCRATCH_BYTES}
    if cpu_tokens:
        layers = StepMemory(spec, DType.FLOAT32)
        held = layers.token_bytes + layers.qkv_token_bytes + layers.partial_token_bytes
        sizes["staging"] += cpu_tokens * held
        scratch = max(layers.pre_token_bytes, layers.post_token_bytes)
        sizes["cpu layer scratch"] = cpu_tokens * scratch
    return sizes


def _ledger(
    plan: OnlinePlan,
    page: KVPageSpec,
    used: dict[str, int],
    host_used: dict[str, int],
    beside: dict[str, int],
    capacities: Capacities,
) -> MemoryLedger:
    """All users of memory. `beside` is the host's and not part of what `--cpu-memory` bounds."""
    place = capacities.device_location
    limits = {place: capacities.device_bytes}
    if capacities.host_bytes:
        limits["host"] = capacities.host_bytes
    if "host" in limits:
        limits["host"] += sum(beside.values())
    ledger = MemoryLedger(limits)
    for label, size in used.items():
        ledger.reserve(place, label, size)
    ledger.reserve(place, "kv pool", plan.device_blocks * page.bytes_per_block)
    if capacities.host_bytes:
        for label, size in host_used.items():
            if size:
                ledger.reserve("host", label, size)
        host_page = page.on(Tier.HOST)
        ledger.reserve("host", "kv pool", plan.host_blocks * host_page.bytes_per_block)
    for label, size in beside.items():
        ledger.reserve("host", label, size)
    return ledger
