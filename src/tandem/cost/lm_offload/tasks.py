"""Time of a generation whose tensors are offloaded (LM-Offload, equations 1 to 9).

Six tasks run at the same time for each step and layer; the slowest decides. Sizes are those of the
whole block. Equations 8 and 9, which scale tasks by a ratio `r` between two placements, are two
policies here.
"""

from dataclasses import dataclass, fields

from tandem.cost.lm_offload.quantization import QuantRates
from tandem.cost.lm_offload.workload import BASE_BITS, OffloadPolicy, OffloadWorkload
from tandem.cost.rates import DeviceRates

_BYTE_BITS = 8


@dataclass(frozen=True, slots=True)
class OffloadRates:
    """What the machine reaches, efficiencies included.

    Attributes:
        accelerator_quant: weights and KV cache are dequantized there, new KV is quantized.
        host_quant: weights are quantized there, once.
        storage_bytes_per_s: weights on their way into host memory; None: they are there.
    """

    h2d_bytes_per_s: float
    d2h_bytes_per_s: float
    accelerator: DeviceRates
    host: DeviceRates
    accelerator_quant: QuantRates
    host_quant: QuantRates
    storage_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """The six tasks of one layer and one step, (de)quantization included."""

    load_weight_s: float
    load_cache_s: float
    load_activation_s: float
    store_cache_s: float
    store_activation_s: float
    compute_s: float

    @property
    def slowest_s(self) -> float:
        """`T_gen` (equation 2)."""
        return max(getattr(self, field.name) for field in fields(self))

    @property
    def bottleneck(self) -> str:
        """The slowest task's name, as in the paper."""
        slowest = max(fields(self), key=lambda field: getattr(self, field.name))
        return slowest.name.removesuffix("_s")


@dataclass(frozen=True, slots=True)
class GenerationTime:
    """A whole block (equation 1).

    Attributes:
        init_s: once: `T_init`. prefill_s: all layers. decode_s: all layers and steps.
        step: the six tasks of a mean step.
    """

    init_s: float
    prefill_s: float
    decode_s: float
    step: TaskTimes
    tokens: int

    @property
    def total_s(self) -> float:
        """`T`."""
        return self.init_s + self.prefill_s + self.decode_s

    @property
    def tokens_per_s(self) -> float:
        """Generated tokens over prefill and decode; what happens once is not counted."""
        return self.tokens / (self.prefill_s + self.decode_s)


def task_times(workload: OffloadWorkload, policy: OffloadPolicy, rates: OffloadRates) -> TaskTimes:
    """The six tasks of a mean step (equations 4, 6, 7)."""
    loaded = workload.layer_weights * policy.weights_on_host
    crossing = 0.0 if policy.attention_on_cpu else policy.cache_on_host
    activations = workload.activations * policy.activations_on_host
    gpu = rates.accelerator_quant
    return TaskTimes(
        load_weight_s=_copy_s(loaded, policy.weight_bits, rates.h2d_bytes_per_s)
        + _extra_s(loaded, policy.weight_bits, gpu.dequantize_elements_per_s),
        load_cache_s=_copy_s(workload.old_kv * crossing, policy.kv_bits, rates.h2d_bytes_per_s)
        + _extra_s(workload.old_kv * crossing, policy.kv_bits, gpu.dequantize_elements_per_s),
        load_activation_s=_copy_s(activations, BASE_BITS, rates.h2d_bytes_per_s),
        store_cache_s=_copy_s(workload.new_kv * crossing, policy.kv_bits, rates.d2h_bytes_per_s)
        + _extra_s(workload.new_kv * crossing, policy.kv_bits, gpu.quantize_elements_per_s),
        store_activation_s=_copy_s(activations, BASE_BITS, rates.d2h_bytes_per_s),
        compute_s=_linear_s(workload, policy, rates) + _attention_s(workload, policy, rates),
    )


def generation_time(
    workload: OffloadWorkload, policy: OffloadPolicy, rates: OffloadRates
) -> GenerationTime:
    """Equations 1, 3 and 5. The prefill runs on the accelerator, its parts side by side."""
    hosted = workload.layer_weights * policy.weights_on_host
    init_s = _extra_s(hosted, policy.weight_bits, rates.host_quant.quantize_elements_per_s)
    if rates.storage_bytes_per_s is not None:
        init_s += _copy_s(workload.layer_weights, BASE_BITS, rates.storage_bytes_per_s)
    step = task_times(workload, policy, rates)
    stored = workload.prefill_kv * policy.cache_on_host
    quantize_s = _extra_s(stored, policy.kv_bits, rates.accelerator_quant.quantize_elements_per_s)
    compute_s = (
        2.0 * workload.layer_weights * workload.rows * workload.prompt
    ) / rates.accelerator.flops_per_s
    store_s = _copy_s(stored, policy.kv_bits, rates.d2h_bytes_per_s)
    prefill_s = max(step.load_weight_s, compute_s, store_s) + quantize_s
    return GenerationTime(
        init_s * workload.layers,
        prefill_s * workload.layers,
        step.slowest_s * (workload.generate - 1) * workload.layers,
        step,
        workload.rows * workload.generate,
    )


def _copy_s(elements: float, bits: int, bytes_per_s: float) -> float:
    return elements * bits / _BYTE_BITS / bytes_per_s


def _extra_s(elements: float, bits: int, elements_per_s: float) -> float:
    return elements / elements_per_s if bits < BASE_BITS else 0.0


def _linear_s(workload: OffloadWorkload, policy: OffloadPolicy, rates: OffloadRates) -> float:
    """Weights are read once per batch; those quantized on the accelerator are written out first."""
    resident = workload.layer_weights * (1 - policy.weights_on_host)
    size = workload.batches * workload.layer_weights * BASE_BITS / _BYTE_BITS
    flops = 2.0 * workload.layer_weights * workload.rows
    gpu = rates.accelerator
    expand_s = _extra_s(
        resident, policy.resident_weight_bits, rates.accelerator_quant.dequantize_elements_per_s
    )
    return max(size / gpu.bytes_per_s, flops / gpu.flops_per_s) + expand_s


def _attention_s(workload: OffloadWorkload, policy: OffloadPolicy, rates: OffloadRates) -> float:
    device = rates.host if policy.attention_on_cpu else rates.accelerator
    size = workload.old_kv * BASE_BITS / _BYTE_BITS
    # Two FLOPs for each key or value element that a query meets, once per query head's share.
    flops = 2.0 * workload.old_kv * workload.hidden_size / workload.kv_size
    return max(size / device.bytes_per_s, flops / device.flops_per_s)
