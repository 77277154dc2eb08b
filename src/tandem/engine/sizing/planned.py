"""Whether an engine can do what a plan from a file says. Pure."""

from dataclasses import replace

from tandem.memory.budget import CAPACITY_PARAMS, MemoryBudget, describe_sum
from tandem.memory.page import KVPageSpec
from tandem.plan.describe import describe_homes, describe_plan
from tandem.plan.offline import OfflinePlan
from tandem.plan.online import OnlinePlan
from tandem.plan.plan_file import PlanFile, PlannedModel
from tandem.plan.weights import ON_CPU, homes_by_layer
from tandem.spec.accelerator import AcceleratorChoice
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision
from tandem.spec.tier import Tier
from tandem.spec.units import format_size, parse_size

_MIB = 1 << 20
_FLOATS = "fp8:"  # how a precision names weights in 8-bit floating point


def require_model(planned: PlanFile, spec: ModelSpec) -> None:
    """The plan must be for this model.

    Raises:
        ConfigError: says what is otherwise.
    """
    different = planned.model.differences(PlannedModel.of(spec))
    if different:
        raise not_executable(
            f"it is for another model, {planned.model_name} ({different}); plan for this "
            "one, or name that one"
        )


def require_as_planned(planned: PlanFile, precision: Precision, choice: AcceleratorChoice) -> None:
    """The plan must be for these types, and for an accelerator if there is one.

    Raises:
        ConfigError: says what is otherwise.
    """
    if not planned.host_only and choice.kind == "none":
        raise not_executable(
            f"it is for an accelerator beside its host ({planned.hardware}), and here is none; "
            "plan with --accelerator none"
        )
    if planned.precision != str(precision):
        types = "for these types with --dtype and --kv-cache-dtype"
        if _FLOATS in planned.precision and not precision.holds_floats:
            types = "with --quantization none: FP8 is not kept here"
        elif precision.holds_floats and _FLOATS not in planned.precision:
            types = "anew, since plans keep FP8 as it is, or with --quantization none"
        elif precision.weights != precision.activations == DType.FLOAT32:
            types = "with --dtype float32: here the host does the maths, with such activations"
        raise not_executable(
            f"it is for {planned.precision}, and this engine would hold {precision}; plan {types}"
        )
    if precision.holds_floats and _cpu_computes(planned.online):
        raise not_executable(
            "it has the CPU compute layers, whose kernels read no FP8; plan with --quantization "
            "none, or leave the plan out"
        )


def _cpu_computes(plan: OnlinePlan) -> bool:
    """Whether layers, or their MLPs, are the CPU's in some steps."""
    homes = homes_by_layer(plan.weights).values()
    return bool(plan.cpu_rules) or any(home in (*ON_CPU, "cpu-mlp") for home in homes)


def require_room(
    planned: OnlinePlan, page: KVPageSpec, device: MemoryBudget, host: MemoryBudget
) -> None:
    """Each memory must hold its pool beside all else.

    Raises:
        ConfigError: one does not; names every number.
    """
    pools = ((device, planned.device_blocks, Tier.DEVICE), (host, planned.host_blocks, Tier.HOST))
    for budget, blocks, tier in pools:
        pool_bytes = blocks * page.on(tier).bytes_per_block
        used = {**budget.used_bytes, "KV": pool_bytes}
        if sum(used.values()) > budget.capacity_bytes:
            flag = f"--{CAPACITY_PARAMS[budget.location].replace('_', '-')}"
            raise not_executable(
                f"it needs {describe_sum(used)} of {budget.location} memory, and "
                f"{format_size(budget.capacity_bytes)} may be used here; plan with {flag} "
                f"{budget.capacity_bytes // _MIB}MiB, or give it more here"
            )


def bounded_pinned(planned: PlanFile, wanted: str | None) -> PlanFile:
    """With no more host memory pinned than the user says, if they do: by plans that may come in its
    place, too.

    Raises:
        ConfigError: the plan itself pins more.
    """
    if wanted is None:
        return planned
    plan, most = planned.blocks, parse_size(wanted, param="pinned_memory")
    if plan.host.pinned_bytes > most:
        raise not_executable(
            f"it pins {format_size(plan.host.pinned_bytes)} of host memory, and {wanted} may be; "
            f"plan with --pinned-memory {wanted}, or allow more here"
        )
    known = plan.most_pinned_bytes
    most = most if known is None else min(most, known)
    return replace(planned, plan=replace(plan, most_pinned_bytes=most))


def plan_note(path: str, planned: PlanFile) -> str:
    """What is executed, for people."""
    return (
        f"as planned in {path} for {planned.model_name} on {planned.hardware}: "
        f"{describe_plan(planned.online, host_only=planned.host_only)}"
    )


def block_plan_note(path: str, planned: PlanFile, plan: OfflinePlan) -> str:
    """What is executed of an offline plan, for people."""
    kv = (
        (plan.resident_rows, "KV on the accelerator"),
        (plan.streamed_rows, "KV streamed"),
        (plan.cpu_rows, "attended on the CPU"),
    )
    rows = ", ".join(f"{count} {what}" for count, what in kv if count)
    made = plan.recomputed_tokens
    return (
        f"as planned in {path} for {planned.model_name} on {planned.hardware}: blocks of "
        f"{plan.batches} x {plan.batch_rows} requests, {describe_homes(plan.weights)}; of a batch "
        + rows
        + _computed(plan)
        + (f"; {made} tokens of what is streamed recomputed" if made else "")
        + ("; only streamed layers in few bits" if plan.quantized_layers == "streamed" else "")
        + _pinned(plan)
    )


def _pinned(plan: OfflinePlan) -> str:
    size = plan.host.pinned_bytes
    return f"; {format_size(size)} of host memory to be pinned" if size else ""


def _computed(plan: OfflinePlan) -> str:
    counts = ((plan.cpu_layers, "layers"), (plan.cpu_mlps, "MLPs"))
    found = " and ".join(f"{len(layers)} {what}" for layers, what in counts if layers)
    if plan.cpu_columns:
        found = f"{plan.cpu_columns} columns of every MLP that is streamed"
        if plan.cpu_attention_maps:
            found += " and the maps of its attention"
    return f"; in passes the CPU computes {found}" if found else ""


def not_executable(reason: str) -> ConfigError:
    """The plan cannot be executed, and why."""
    return ConfigError(f"the plan cannot be executed: {reason}", param="plan")
