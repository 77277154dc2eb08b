"""Which bytes an offline plan takes when an engine executes it. Pure."""

from dataclasses import dataclass, replace

from tandem.engine.sizing.capacities import Capacities
from tandem.engine.sizing.planned import not_executable
from tandem.engine.sizing.weight_placement import WeightSizes
from tandem.memory.block_step import BlockStep, CpuStepBytes, block_step_bytes
from tandem.memory.budget import CAPACITY_PARAMS, MemoryBudget, describe_sum
from tandem.memory.ledger import MemoryLedger
from tandem.memory.page import KVPageSpec
from tandem.memory.workspace import StepMemory
from tandem.plan.block_room import BlockRoom
from tandem.plan.block_shape import CACHE_SLOTS, MADE_AT_ONCE
from tandem.plan.offline import OfflinePlan
from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision
from tandem.spec.tier import Tier
from tandem.spec.units import MIB, format_size

_SLOT_BYTES = 8  # a sampled token id, int64


@dataclass(frozen=True, slots=True)
class BlockMemory:
    """The predictions behind an engine of an offline plan.

    Attributes:
        workspace_bytes: all that the accelerator has beside weights and KV.
        prompt_tokens: most tokens of prompts between two layers.
    """

    page: KVPageSpec
    room: BlockRoom
    ledger: MemoryLedger
    workspace_bytes: int
    prompt_tokens: int


def plan_block_memory(
    plan: OfflinePlan,
    spec: ModelSpec,
    precision: Precision,
    capacities: Capacities,
    *,
    direct: bool = False,
) -> BlockMemory:
    """Sums of both memories; prompts between layers get what is left of one.

    Args:
        direct: layers on disk are read into slots on the accelerator, not in host memory.

    Raises:
        ConfigError: one does not hold its part; names every number.
    """
    _check_columns(plan, spec, precision)
    page = KVPageSpec.of_model(
        spec, dtype=precision.kv, block_size=plan.block_size, host_dtype=precision.host_kv
    )
    kept = page.on(Tier.HOST)
    room = BlockRoom.of(plan)
    weights = _WeightBytes.of(plan, spec, precision, direct=direct)
    memory = StepMemory(spec, precision.activations)
    hidden_bytes = spec.hidden_size * precision.activations.size_bytes
    part_tokens = max(plan.prefill_tokens, plan.max_model_len)
    prefix_tokens = room.recomputed_blocks * plan.block_size
    slots = CACHE_SLOTS * room.slot_blocks * kept.bytes_per_block_layer
    slots += room.recomputed_blocks * page.bytes_per_block_layer
    device = {
        "weights": weights.device,
        "kv pool": room.device_blocks * page.bytes_per_block,
        "kv slots": slots + CACHE_SLOTS * prefix_tokens * hidden_bytes,
        "slot table": plan.block_rows * _SLOT_BYTES,
    }
    # any sequence with its KV on the host, where they are shared out anew
    cpu_rows = plan.cpu_rows if plan.terms is None else plan.host_rows
    workspace = block_step_bytes(
        memory,
        BlockStep(
            tokens=part_tokens,
            rows=plan.batch_rows,
            block_rows=plan.block_rows,
            made_tokens=min(prefix_tokens, MADE_AT_ONCE),
            attends_on_cpu=cpu_rows > 0,
            prompts_on_host=plan.prompts_on_host,
            real=capacities.real,
            divides=plan.cpu_columns > 0,
        ),
    )
    host = {
        "weights": weights.host,
        "weight slots": weights.host_slots,
        "kv pool": room.host_blocks * kept.bytes_per_block,
        "activations": room.prefix_entries * spec.num_layers * hidden_bytes,
        "staging": cpu_rows * plan.batches * (memory.qkv_token_bytes + memory.partial_token_bytes),
    }
    if plan.cpu_mlps or plan.cpu_layers or plan.cpu_columns:
        maps = plan.cpu_attention_maps
        whole = bool(plan.cpu_layers) or maps
        on_cpu = CpuStepBytes.of(StepMemory(spec, DType.FLOAT32), whole=whole, divided=maps)
        host["staging"] += plan.block_rows * on_cpu.held
        host["cpu layer scratch"] = plan.batch_rows * on_cpu.scratch
        workspace += plan.batch_rows * memory.token_bytes  # a batch's on its way back
    prompts = part_tokens * _prompt_bytes(plan, hidden_bytes)
    if plan.prompts_on_host:
        host["prompts"] = prompts
    else:
        workspace += prompts
    on_device = MemoryBudget("device", capacities.device_bytes, device | {"workspace": workspace})
    in_host = MemoryBudget("host", capacities.host_bytes, host)
    _require(on_device, weights.direct_slots)
    _require(in_host)
    left = in_host if plan.prompts_on_host else on_device
    most = part_tokens + left.left_bytes // _prompt_bytes(plan, hidden_bytes)
    fixed = sum(device.values())
    return BlockMemory(
        page, room, _ledger(weights.disk, on_device, in_host), capacities.device_bytes - fixed, most
    )


def _check_columns(plan: OfflinePlan, spec: ModelSpec, precision: Precision) -> None:
    """The plan knows neither the model nor how its checkpoint is quantized."""
    if not plan.cpu_columns:
        return
    if spec.experts is not None:
        raise not_executable("cpu_columns divide MLPs, and this model has experts in their place")
    if precision.quantized:
        raise not_executable("cpu_columns divide MLPs in 16 or 32 bits, and these are in few bits")
    if plan.cpu_columns >= spec.intermediate_size:
        raise not_executable(
            f"cpu_columns are {plan.cpu_columns}, of MLPs with {spec.intermediate_size}"
        )


@dataclass(frozen=True, slots=True)
class _WeightBytes:
    """Where weights are.

    Attributes:
        device: slots included. host: layers; host_slots: what those on disk go through.
        direct_slots: of `device`, what these are read into there, which no plan counts on.
        disk: what every pass reads.
    """

    device: int
    host: int
    host_slots: int
    direct_slots: int
    disk: int

    @staticmethod
    def of(
        plan: OfflinePlan, spec: ModelSpec, precision: Precision, *, direct: bool
    ) -> "_WeightBytes":
        """As a plan places them."""
        moving = WeightSizes.of(spec, precision)
        resident = moving
        if plan.quantized_layers == "streamed":
            resident = WeightSizes.of(spec, replace(precision, quantized={}))
        there = resident.device_bytes(plan.weights) - resident.slots_bytes(plan.weights)
        there += moving.slots_bytes(plan.weights)
        read, held = moving.disk_bytes(plan.weights), moving.host_bytes(plan.weights)
        through = replace(moving, direct=direct)
        in_host = through.disk_slots if read else 0
        on_device = through.direct_slots_bytes(plan.weights)
        return _WeightBytes(there + on_device, held, in_host, on_device, read)


def _prompt_bytes(plan: OfflinePlan, hidden_bytes: int) -> int:
    """Of a prompt's token between layers: the residual, and on the accelerator its place."""
    return hidden_bytes + (0 if plan.prompts_on_host else 3 * _SLOT_BYTES)


def _require(budget: MemoryBudget, not_planned: int = 0) -> None:
    """Args:
    not_planned: of what is used, what plans do not count on.
    """
    if budget.left_bytes < 0:
        flag = f"--{CAPACITY_PARAMS[budget.location].replace('_', '-')}"
        raise not_executable(
            f"it needs {describe_sum(budget.used_bytes)} of {budget.location} memory, and "
            f"{format_size(budget.capacity_bytes)} may be used here; plan with {flag} "
            f"{max(0, budget.capacity_bytes - not_planned) // MIB}MiB, or give it more here"
        )


def _ledger(disk_bytes: int, *budgets: MemoryBudget) -> MemoryLedger:
    ledger = MemoryLedger({budget.location: budget.capacity_bytes for budget in budgets})
    for budget in budgets:
        for label, size in budget.used_bytes.items():
            if size:
                ledger.reserve(budget.location, label, size)
    if disk_bytes:
        ledger.reserve("disk", "weights", disk_bytes)
    return ledger
