"""A price list of steps by rooflines on a machine's rates, measured or from data sheets."""

from collections import Counter

from tandem.cost.expert_use import ExpertUse
from tandem.cost.page_price import PagePrice
from tandem.cost.placed_sweep import mixture_times, predicted_sweep_s
from tandem.cost.quantized import PreciseStage, gpu_kernels
from tandem.cost.rates import HOST_OPERATION_S, DeviceRates, accelerator_rates, d2h_rates, h2d_rates
from tandem.cost.split_mixture import MixtureBytes
from tandem.cost.stage import (
    copy_cost,
    embedding_cost,
    head_cost,
    merge_cost,
    partial_bytes,
    sampling_cost,
    staged_qkv_bytes,
)
from tandem.cost.staircase import Staircase
from tandem.cost.step_prices import AttentionPrice, StepPrices
from tandem.cost.sweep_time import layer_times
from tandem.plan.online import OnlinePlan
from tandem.plan.weights import homes_by_layer, resident_experts
from tandem.spec.hardware import HardwareSpec
from tandem.spec.layer_operations import layer_operations
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision

_FP32_BYTES = 4
_HOST_OPERATIONS = 2  # append and attend


def step_prices(
    plan: OnlinePlan,
    spec: ModelSpec,
    precision: Precision,
    hardware: HardwareSpec,
    device_key_bytes: float,
    host_key_bytes: float,
    use: ExpertUse | None = None,
) -> StepPrices:
    """What the plan's steps take.

    Args:
        device_key_bytes, host_key_bytes: of a token's keys and values in one layer, in each tier.
        use: of experts, as counted; None: uniform.
    """
    most = plan.max_num_batched_tokens
    dtype = precision.activations
    rates = accelerator_rates(hardware, dtype)
    use = use or ExpertUse.uniform(spec)
    linear, layer = _linear(plan, spec, precision, hardware, use)

    def head_s(rows: int) -> float:
        logits_s = head_cost(spec, rows, precision.weights, rates).total_s
        return logits_s + sampling_cost(spec, rows, rates).total_s

    def link_s(queries: int) -> float:
        down = copy_cost(staged_qkv_bytes(spec, queries, queries, dtype), d2h_rates(hardware))
        up = copy_cost(partial_bytes(spec, queries), h2d_rates(hardware))
        return down.total_s + up.total_s

    host = DeviceRates(
        hardware.host.memory_bandwidth_bytes_per_s,
        hardware.host.flops_per_s,
        HOST_OPERATION_S,
    )
    windows = Counter(spec.layer_windows)
    return StepPrices(
        num_layers=spec.num_layers,
        windows=tuple((window, n / spec.num_layers) for window, n in sorted(windows.items())),
        linear=linear,
        layer=layer,
        head=Staircase.of(head_s, most),
        device=_attention(spec, rates, device_key_bytes, 2),
        host=_attention(spec, host, host_key_bytes, _HOST_OPERATIONS),
        link=Staircase.of(link_s, most),
        merge=Staircase.of(lambda tokens: merge_cost(spec, tokens, rates).total_s, most),
        pages=_pages(hardware, spec.num_layers * plan.block_size * device_key_bytes),
        launch_s=0.0 if plan.launch_ahead_steps > 1 else hardware.accelerator.launch_latency_s,
        max_join_wait_s=plan.max_join_wait_s,
    )


def _pages(hardware: HardwareSpec, block_bytes: float) -> PagePrice:
    latency_s = hardware.link.latency_s
    return PagePrice(
        start_in_s=latency_s,
        block_in_s=block_bytes / h2d_rates(hardware).bytes_per_s,
        start_out_s=latency_s,
        block_out_s=block_bytes / d2h_rates(hardware).bytes_per_s,
    )


def _linear(
    plan: OnlinePlan,
    spec: ModelSpec,
    precision: Precision,
    hardware: HardwareSpec,
    use: ExpertUse,
) -> tuple[Staircase, Staircase]:
    """Of all layers, and of one on the accelerator; of the last layer, if they differ."""
    rates = accelerator_rates(hardware, precision.activations)
    every = layer_operations(spec, spec.num_layers - 1)
    kernels = gpu_kernels(hardware.accelerator, precision.activations)
    stage = PreciseStage([op for op in every if not op.is_attention], precision, kernels)
    resident = set(homes_by_layer(plan.weights).values()) == {"resident"}
    link = h2d_rates(hardware) if plan.embedding == "host" else None
    mixtures = MixtureBytes.of(spec, precision) if resident_experts(plan.weights) else None

    def layer_s(tokens: int) -> float:
        return stage.cost(tokens, rates).total_s

    def all_s(tokens: int) -> float:
        embedding_s = embedding_cost(spec, tokens, precision.activations, rates, link).total_s
        if resident:
            return embedding_s + spec.num_layers * layer_s(tokens)
        times = layer_times(spec, precision, tokens, hardware)
        split = mixture_times(plan.weights, spec, precision, tokens, hardware, use, mixtures)
        return embedding_s + predicted_sweep_s(plan.weights, plan.cpu_rules, tokens, times, split)

    most = plan.max_num_batched_tokens
    tile = rates.tile_rows
    return Staircase.of(all_s, most, tile), Staircase.of(layer_s, most, tile)


def _attention(
    spec: ModelSpec, rates: DeviceRates, key_bytes: float, kernels: int
) -> AttentionPrice:
    """Reads cached keys and values, writes results in float32, appends each query's own."""
    pair_flops = sum(op.flops_per_pair for op in layer_operations(spec) if op.is_attention)
    query_bytes = spec.q_size * _FP32_BYTES + 2 * key_bytes
    return AttentionPrice(
        start_s=kernels * rates.kernel_overhead_s,
        key_s=key_bytes / rates.bytes_per_s,
        pair_s=pair_flops / rates.flops_per_s,
        query_s=query_bytes / rates.bytes_per_s,
    )
