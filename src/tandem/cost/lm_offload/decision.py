"""Whether quantizing pays, tensor by tensor (LM-Offload, section 3.2, "how to use the models")."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from tandem.cost.lm_offload.tasks import (
    GenerationTime,
    OffloadRates,
    generation_time,
    task_times,
)
from tandem.cost.lm_offload.workload import BASE_BITS, OffloadPolicy, OffloadWorkload


@dataclass(frozen=True, slots=True)
class TensorVerdict:
    """One tensor's tasks with and without quantization, per layer and step.

    Attributes:
        once_s: what is paid once, over all layers, before the first token.
    """

    tensor: str
    bits: int
    plain_s: float
    quantized_s: float
    once_s: float
    steps: int

    @property
    def pays(self) -> bool:
        """Saves more over the generation than it costs once."""
        return self.steps * (self.plain_s - self.quantized_s) > self.once_s


@dataclass(frozen=True, slots=True)
class PrecisionChoice:
    """The best bits per tensor, by the time of the whole block."""

    policy: OffloadPolicy
    time: GenerationTime
    weights: TensorVerdict
    cache: TensorVerdict


def weight_verdict(
    workload: OffloadWorkload, policy: OffloadPolicy, rates: OffloadRates, bits: int
) -> TensorVerdict:
    """`load_weight` as it is against equations 3 and 4."""
    plain = replace(policy, weight_bits=BASE_BITS)
    quantized = replace(policy, weight_bits=bits)
    once = [generation_time(workload, each, rates).init_s for each in (plain, quantized)]
    return TensorVerdict(
        "weights",
        bits,
        task_times(workload, plain, rates).load_weight_s,
        task_times(workload, quantized, rates).load_weight_s,
        max(once[1] - once[0], 0.0),
        workload.layers * (workload.generate - 1),
    )


def cache_verdict(
    workload: OffloadWorkload, policy: OffloadPolicy, rates: OffloadRates, bits: int
) -> TensorVerdict:
    """`load_cache + store_cache` as they are against equations 6 and 7, and equation 5 once."""
    plain, quantized = replace(policy, kv_bits=BASE_BITS), replace(policy, kv_bits=bits)
    tasks = [task_times(workload, each, rates) for each in (plain, quantized)]
    prefill = [generation_time(workload, each, rates).prefill_s for each in (plain, quantized)]
    return TensorVerdict(
        "KV cache",
        bits,
        tasks[0].load_cache_s + tasks[0].store_cache_s,
        tasks[1].load_cache_s + tasks[1].store_cache_s,
        max(prefill[1] - prefill[0], 0.0),
        workload.layers * (workload.generate - 1),
    )


def choose_precision(
    workload: OffloadWorkload,
    policy: OffloadPolicy,
    rates: OffloadRates,
    bits: Sequence[int] = (BASE_BITS, 8, 4),
) -> PrecisionChoice:
    """The fastest pair of widths for what lies on the host; the widest among equals.

    Attention on the CPU reads keys and values in 16 bits: there is no cache to load or store, and
    nothing to quantize it for. The verdicts are on the chosen width, or on the narrowest where
    quantizing does not pay.
    """
    widths = sorted(set(bits), reverse=True)
    kv_widths = [BASE_BITS] if policy.attention_on_cpu else widths
    best = min(
        (
            replace(policy, weight_bits=weight, kv_bits=kv)
            for weight, kv in product(widths, kv_widths)
        ),
        key=lambda each: generation_time(workload, each, rates).total_s,
    )
    narrowest = widths[-1]
    weight_bits = best.weight_bits if best.weight_bits < BASE_BITS else narrowest
    kv_bits = best.kv_bits if best.kv_bits < BASE_BITS else narrowest
    return PrecisionChoice(
        best,
        generation_time(workload, best, rates),
        weight_verdict(workload, best, rates, weight_bits),
        cache_verdict(workload, best, rates, kv_bits),
    )
