"""How long a sweep takes whose layers are resident, streamed, or, they or their MLPs, on the CPU.

The layers of a sweep are one chain, from device to device; loads run beside it, each as soon as its
slot is free. Attention is left out: it is done where the KV lies, whoever computes the layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tandem.cost.rates import DeviceRates, accelerator_rates, d2h_rates, h2d_rates
from tandem.cost.stage import copy_cost, partial_bytes, stage_cost, staged_qkv_bytes
from tandem.spec.dtype import DType
from tandem.spec.hardware import HardwareSpec
from tandem.spec.layer_operations import layer_operations
from tandem.spec.model import ModelSpec
from tandem.spec.operations import Operation, split_post
from tandem.spec.parameters import layer_matrix_bytes
from tandem.spec.precision import Precision

Way = Literal["resident", "loaded", "cpu", "cpu-mlp"]
HOST_OPERATION_S = 10e-6
"""What an operation costs the CPU beside its work: it is handed to threads, and waited for."""
_SWEEPS = 3  # until a prediction is that of a steady state


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """One layer in a sweep of some number of tokens.

    Attributes:
        accelerator_s, cpu_s: its stages there.
        load_s: its weights over the link.
        queries_s: q, k and v to the accelerator's part of attention, and the result back.
        turn_s: residuals to the CPU and back, once for adjacent layers there.
        host_read_s: its weights out of the host's memory at full rate, by the link.
        cpu_read_s: those that the CPU needs, likewise; of experts, the expected number.
        attention_s: on the accelerator, without the MLP. mlp_cpu_s, mlp_read_s: of the MLP alone.
    """

    accelerator_s: float
    cpu_s: float
    load_s: float
    queries_s: float
    turn_s: float
    host_read_s: float
    cpu_read_s: float = 0.0
    attention_s: float = 0.0
    mlp_cpu_s: float = 0.0
    mlp_read_s: float = 0.0


def layer_times(
    spec: ModelSpec, precision: Precision, tokens: int, hardware: HardwareSpec
) -> LayerTimes:
    """Of `tokens` tokens, by a roofline on the hardware's rates; of the last layer, if they differ.

    Computing reads quantized weights as if they were not.
    """
    layer, dtype = spec.num_layers - 1, precision.weights
    every = layer_operations(spec, layer)
    operations = [op for op in every if not op.is_attention]
    mlp = split_post(every).mlp.of(every)
    before = [op for op in operations if op not in mlp]
    host = DeviceRates(
        hardware.host.memory_bandwidth_bytes_per_s, hardware.host.flops_per_s, HOST_OPERATION_S
    )
    up, down = h2d_rates(hardware), d2h_rates(hardware)
    weights = layer_matrix_bytes(spec, precision, layer)
    residual = tokens * spec.hidden_size * dtype.size_bytes
    queries = staged_qkv_bytes(spec, tokens, tokens, dtype)
    accelerator = accelerator_rates(hardware, dtype)
    return LayerTimes(
        accelerator_s=stage_cost(operations, tokens, dtype, accelerator).total_s,
        cpu_s=stage_cost(operations, tokens, dtype, host).total_s,
        load_s=copy_cost(weights, up).total_s,
        queries_s=copy_cost(queries, up).total_s
        + copy_cost(partial_bytes(spec, tokens), down).total_s,
        turn_s=copy_cost(residual, up).total_s + copy_cost(residual, down).total_s,
        host_read_s=weights / host.bytes_per_s,
        cpu_read_s=_read_bytes(operations, tokens, dtype) / host.bytes_per_s,
        attention_s=stage_cost(before, tokens, dtype, accelerator).total_s,
        mlp_cpu_s=stage_cost(mlp, tokens, dtype, host).total_s,
        mlp_read_s=_read_bytes(mlp, tokens, dtype) / host.bytes_per_s,
    )


def _read_bytes(operations: Sequence[Operation], tokens: int, dtype: DType) -> float:
    return sum(op.read_weight_elements(tokens) for op in operations) * dtype.size_bytes


def sweep_s(ways: Sequence[Way], slots: int, times: LayerTimes) -> float:
    """Time from one sweep to the next when one follows the other.

    Args:
        ways: of each layer. slots: that loaded layers go through in turn; they stay there if they
            are no more.
    """
    loads = sum(way == "loaded" for way in ways)
    reloads = loads > slots
    ready = [0.0] * slots
    chain_s = link_s = before_s = 0.0
    for _ in range(_SWEEPS):
        before_s, at, last = chain_s, 0, "resident"
        for way in ways:
            if way == "loaded":
                chain_s = max(chain_s, ready[at % slots])
            if way == "cpu":
                on_host = last in ("cpu", "cpu-mlp")
                chain_s += times.cpu_s + times.queries_s + (0 if on_host else times.turn_s)
            elif way == "cpu-mlp":
                chain_s += times.attention_s + times.turn_s + times.mlp_cpu_s
            else:
                chain_s += times.accelerator_s
            if way == "loaded":
                if reloads:
                    link_s = max(link_s, chain_s) + times.load_s
                    ready[at % slots] = link_s
                at += 1
            last = way
    # link and cores share the host's memory
    read_s = ways.count("cpu") * times.cpu_read_s + ways.count("cpu-mlp") * times.mlp_read_s
    read_s += loads * times.host_read_s if reloads else 0
    return max(chain_s - before_s, read_s)
