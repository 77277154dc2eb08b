"""From configuration and capacities to an `OnlinePlan`: how large everything is. Pure."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.cost.expert_use import ExpertUse
from tandem.engine.sizing.capacities import Capacities
from tandem.engine.sizing.context_length import longest_request, wanted_tokens
from tandem.engine.sizing.cpu_rules import choose_cpu_rules
from tandem.engine.sizing.expert_hits_file import read_expert_use
from tandem.engine.sizing.expert_placement import check_experts, void_hits
from tandem.engine.sizing.host_overheads import process_overheads, staging_overheads
from tandem.engine.sizing.host_room import NoRoomError, disk_hint, plan_within_room
from tandem.engine.sizing.mlp_choice import PlacementTimes
from tandem.engine.sizing.placement_choice import place_weights
from tandem.engine.sizing.plan_checks import (
    check_config,
    check_placement,
    may_choose_steps,
)
from tandem.engine.sizing.planned import require_room
from tandem.engine.sizing.step_bounds import (
    cohorts_of,
    largest_step,
    strategy_of,
)
from tandem.engine.sizing.weight_notes import void_host_layers, weight_notes
from tandem.engine.sizing.weight_placement import WeightSizes, refuse_fixed, refuse_tied
from tandem.memory.budget import MemoryBudget
from tandem.memory.growth_reserve import with_growth_reserve
from tandem.memory.host_default import default_host_blocks
from tandem.memory.ledger import MemoryLedger
from tandem.memory.page import KVPageSpec
from tandem.memory.scratch import KERNEL_BYTES, page_table_bytes
from tandem.memory.sizing import PoolSizes, size_pools
from tandem.memory.workspace import KERNEL_SCRATCH_BYTES, LargestStep, workspace_bytes
from tandem.plan.online import OnlinePlan
from tandem.plan.sweep_layers import CpuRule, SweepChoice
from tandem.plan.usual_cohorts import usual_passes
from tandem.plan.weights import PlacedWeights, WeightPlacement
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError, ShortOfMemoryError
from tandem.spec.hardware import HardwareSpec
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision
from tandem.spec.tier import Tier

if TYPE_CHECKING:
    from tandem.engine.sizing.graph_choice import GraphChoice

_SLOT_BYTES = 8  # a sampled token id, int64


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The plan and the predictions behind it.

    Attributes:
        graphs: of decoding steps, to be recorded; None: none are.
    """

    plan: OnlinePlan
    page: KVPageSpec
    ledger: MemoryLedger
    workspace_bytes: int
    graphs: "GraphChoice | None" = None


def plan_memory(
    config: EngineConfig,
    spec: ModelSpec,
    precision: Precision,
    capacities: Capacities,
    notes: tuple[str, ...] = (),
    measured_workspace_bytes: int | None = None,
    placed: PlacedWeights | None = None,
    hardware: HardwareSpec | None = None,
    planned: OnlinePlan | None = None,
) -> MemoryPlan:
    """Weights first, then workspace, and KV blocks in what is left; see `OnlinePlan`.

    Args:
        measured_workspace_bytes: from a warm-up at maximum shape; takes the prediction's place.
        placed: homes of the weights, where they have been decided already.
        hardware: rates by which to decide which layers the CPU computes; None: not known.
        planned: homes, pools and rules that have been decided; `config` says all else that it does.

    Raises:
        ConfigError: the weights do not fit, or no request of the wanted length ever could; names
            the nearest settings with which they do.
    """

    def sized(config: EngineConfig, capacities: Capacities, *, graphs: bool) -> MemoryPlan:
        def within(capacities: Capacities) -> MemoryPlan:
            return _plan(
                _Asked(
                    config,
                    spec,
                    precision,
                    capacities,
                    notes,
                    measured_workspace_bytes,
                    placed,
                    hardware,
                    planned,
                    graphs,
                )
            )

        if planned is not None:  # it says how much is used, whatever may be
            capacities = replace(capacities, elastic=True)
        return plan_within_room(within, lambda memory: memory.ledger, capacities)

    def made(config: EngineConfig, capacities: Capacities) -> MemoryPlan:
        wants = config.cuda_graphs == "on" or (config.cuda_graphs == "auto" and capacities.graphs)
        if not wants:
            return sized(config, capacities, graphs=False)
        # Imported where there may be graphs: a first token waits for what is imported.
        from tandem.engine.sizing.graph_choice import with_graphs

        return with_graphs(
            config, spec, capacities, lambda graphs: sized(config, capacities, graphs=graphs)
        )

    def fits(config: EngineConfig, capacities: Capacities) -> bool:
        try:
            made(config, capacities)
        except ConfigError:
            return False
        return True

    try:
        return made(config, capacities)
    except ShortOfMemoryError as error:
        from tandem.engine.sizing.nearest_settings import (
            nearest_settings,  # no other start needs it
        )

        no_room = error if isinstance(error, NoRoomError) else None
        remedy = nearest_settings(config, capacities, fits, no_room)
        raise ConfigError(f"{error.message}; {remedy}", param=error.param) from None


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is to be planned; attributes as arguments of `plan_memory`.

    Attributes:
        graphs: of decoding steps are to be recorded.
    """

    config: EngineConfig
    spec: ModelSpec
    precision: Precision
    capacities: Capacities
    notes: tuple[str, ...]
    measured_workspace_bytes: int | None
    placed: PlacedWeights | None
    hardware: HardwareSpec | None
    planned: OnlinePlan | None
    graphs: bool

    def expert_use(self) -> ExpertUse | None:
        """As counted; None: not known, or nothing is left to decide by it."""
        if self.config.expert_hits is None or self.planned is not None:
            return None
        return read_expert_use(Path(self.config.expert_hits), self.spec)


def _plan(asked: _Asked) -> MemoryPlan:
    config, spec, precision = asked.config, asked.spec, asked.precision
    capacities, hardware, planned = asked.capacities, asked.hardware, asked.planned
    check_config(config, capacities)
    wanted = wanted_tokens(config, spec)
    page = KVPageSpec.of_model(
        spec, dtype=precision.kv, block_size=config.block_size, host_dtype=precision.host_kv
    )
    largest = largest_step(config, capacities, planned)
    workspace = workspace_bytes(spec, precision.activations, largest)
    around = _around(config, capacities, workspace, asked.measured_workspace_bytes)
    graphs_of, recorded = None, None
    if asked.graphs:
        from tandem.engine.sizing.graph_choice import charged, choose_graphs

        hybrid = largest.tiers > 1
        graphs_of = partial(
            choose_graphs, config, spec, precision, page, capacities, wanted, hybrid=hybrid
        )
        # of all layers, while it is not known which stay: hardly fewer than of some
        around |= charged(graphs_of())
    sizes, use = WeightSizes.of(spec, precision), asked.expert_use()
    sizes = replace(sizes, direct=config.disk_io == "gpudirect")
    room = MemoryBudget(capacities.device_location, capacities.device_bytes, around)
    placed = _placed(asked, sizes, room, page, largest, use)
    placement, sizes = placed.layers, sizes.with_embedding(placed.embedding)
    check_placement(config, placement)
    if graphs_of is not None:
        recorded = graphs_of(placement)
        around |= charged(recorded)
    device, host = _budgets(sizes, placement, around, capacities)
    notes = asked.notes + void_host_layers(config, placement)
    if planned is None:
        rules = ()
        if hardware is not None:
            rules = choose_cpu_rules(placement, spec, precision, largest.tokens, hardware, use)
        notes += weight_notes(sizes, placement, rules)
        if config.expert_hits is not None:
            notes += void_hits(placement)
        most = default_host_blocks(page, wanted) if capacities.elastic else None
        chooses = hardware is not None and may_choose_steps(config, capacities)
        plan = _filled(config, placed, rules, page, device, host, wanted, notes, most, chooses)
    else:
        require_room(planned, page, device, host)
        notes += weight_notes(sizes, placement, planned.cpu_rules)
        plan = replace(planned, notes=notes)
    beside = process_overheads(capacities, spec, page, largest, plan.max_model_len, workspace)
    if capacities.host_bytes:
        sweeps = SweepChoice.of_plan(placement, plan.cpu_rules)
        beside |= staging_overheads(spec, precision.activations, largest, sweeps)
    pools = _pool_bytes(plan, page)
    beside["kernel"] = _kernel_bytes(capacities, device, host, pools, beside)
    ledger = _ledger(device, host, pools, beside)
    if sizes.disk_bytes(placement):
        ledger.reserve("disk", "weights", sizes.disk_bytes(placement))
        if planned is None and config.placement is None:  # else nothing would leave fewer there
            plan = replace(plan, notes=plan.notes + disk_hint(capacities, beside))
    return MemoryPlan(plan, page, ledger, workspace, recorded)


def _placed(
    asked: _Asked,
    sizes: WeightSizes,
    room: MemoryBudget,
    page: KVPageSpec,
    largest: LargestStep,
    use: ExpertUse | None,
) -> PlacedWeights:
    """Homes of the weights: as planned, as decided already, or chosen here."""
    config, spec, planned, hardware = asked.config, asked.spec, asked.planned, asked.hardware
    if planned is not None:
        refuse_fixed(sizes, planned.weights)
        refuse_tied(sizes, planned.embedding)
        check_experts(sizes, planned.weights)
        return PlacedWeights(planned.weights, planned.embedding)
    if asked.placed is not None:
        return asked.placed
    if asked.precision.holds_floats:
        config = replace(config, host_layers="stream")
    times = None
    weighs = config.host_layers == "auto" or (config.host_layers == "mlp" and use is not None)
    if weighs and hardware is not None:
        times = PlacementTimes(spec, asked.precision, hardware, largest.rows, largest.tokens, use)
    return place_weights(
        config,
        sizes,
        room,
        asked.capacities,
        page,
        wanted_tokens(config, spec),
        times,
        use,
        rates_known=hardware is not None,
    )


def _around(
    config: EngineConfig, capacities: Capacities, workspace: int, measured: int | None
) -> dict[str, int]:
    """What lies beside weights and pages where the maths is done."""
    used = {"workspace": workspace, "slot table": config.max_num_seqs * _SLOT_BYTES}
    if measured is not None:
        used["workspace"] = measured
    elif capacities.real and capacities.device_location == "device":
        used["kernel scratch"] = KERNEL_SCRATCH_BYTES
    return used


def _budgets(
    sizes: WeightSizes,
    placement: tuple[WeightPlacement, ...],
    around: dict[str, int],
    capacities: Capacities,
) -> tuple[MemoryBudget, MemoryBudget]:
    """Of the memory where the maths is done, and of the host's beside it: all but the pages."""
    used = {"weights": sizes.device_bytes(placement)}
    in_host = {"weights": sizes.host_bytes(placement) + sizes.hosted_embedding}
    if sizes.disk_bytes(placement) and not sizes.direct:
        slots_in = used if capacities.device_location == "host" else in_host
        slots_in["weight slots"] = sizes.disk_slots
    return (
        MemoryBudget(capacities.device_location, capacities.device_bytes, used | around),
        MemoryBudget("host", capacities.host_bytes, in_host),
    )


def _filled(
    config: EngineConfig,
    placed: PlacedWeights,
    rules: tuple[CpuRule, ...],
    page: KVPageSpec,
    device: MemoryBudget,
    host: MemoryBudget,
    wanted: int,
    notes: tuple[str, ...],
    host_blocks: int | None,
    chooses: bool,
) -> OnlinePlan:
    """A plan whose pools fill what the weights leave, in host memory up to `host_blocks`."""
    held = config.max_num_seqs * page.blocks_for_tokens(wanted)
    in_host = held if host_blocks is None else min(held, host_blocks)
    on_device = with_growth_reserve(config.max_num_seqs, held)
    if device.location == "host" and host_blocks is not None:
        on_device = min(on_device, host_blocks)
    pools = size_pools(page, device, host, max_tokens=1, max_blocks=PoolSizes(on_device, in_host))
    max_len, length_notes = longest_request(config, page, pools, wanted, device, host)
    strategy = strategy_of(config, pools, chooses=chooses)
    cohorts, cohort_rows = cohorts_of(config, strategy)
    if config.tpot_bound is not None and config.ttft_bound is None and strategy != "auto":
        notes += (
            f"--tpot-bound {config.tpot_bound} has no effect: no rates are known to choose by",
        )
    return OnlinePlan(
        strategy=strategy,
        weights=placed.layers,
        embedding=placed.embedding,
        device_blocks=pools.device_blocks,
        host_blocks=pools.host_blocks,
        block_size=config.block_size,
        max_model_len=max_len,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_cohorts=cohorts,
        max_cohort_rows=cohort_rows,
        launch_ahead_steps=2 if config.overlap else 1,
        cpu_rules=rules,
        kv_placement=config.kv_placement,
        max_host_seqs=config.max_host_seqs,
        interposition_budget=usual_passes(strategy, placed.layers, config.interposition_budget),
        notes=notes + length_notes,
    )


def _pool_bytes(plan: OnlinePlan, page: KVPageSpec) -> tuple[int, int]:
    """Of both pools of KV, the host's in its own type."""
    hosted = page.on(Tier.HOST)
    on_device = plan.device_blocks * page.bytes_per_block
    return on_device, plan.host_blocks * hosted.bytes_per_block


def _kernel_bytes(
    capacities: Capacities,
    device: MemoryBudget,
    host: MemoryBudget,
    pools: tuple[int, int],
    beside: dict[str, int],
) -> int:
    """Page tables of all that lies in host memory, an emulated accelerator's included, and the rest
    that the kernel keeps for a process.
    """
    mapped = sum(beside.values()) + sum(host.used_bytes.values()) + pools[1]
    if device.location == "host" or capacities.device_in_host:
        mapped += sum(device.used_bytes.values()) + pools[0]
    return page_table_bytes(mapped) + KERNEL_BYTES


def _ledger(
    device: MemoryBudget, host: MemoryBudget, pools: tuple[int, int], beside: dict[str, int]
) -> MemoryLedger:
    """All users of memory. `beside` is the host's and not part of what `--cpu-memory` bounds."""
    limits = {device.location: device.capacity_bytes}
    if host.capacity_bytes:
        limits["host"] = host.capacity_bytes
    if "host" in limits:
        limits["host"] += sum(beside.values())
    ledger = MemoryLedger(limits)
    for label, size in device.used_bytes.items():
        ledger.reserve(device.location, label, size)
    ledger.reserve(device.location, "kv pool", pools[0])
    if host.capacity_bytes:
        for label, size in host.used_bytes.items():
            if size:
                ledger.reserve("host", label, size)
        ledger.reserve("host", "kv pool", pools[1])
    for label, size in beside.items():
        ledger.reserve("host", label, size)
    return ledger
