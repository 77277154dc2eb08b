"""What the papers' models need to know of a model, from its facts."""

from tandem.cost.kvpr.recompute import KVFetch
from tandem.cost.kvpr.restore import Restore
from tandem.cost.lm_offload.workload import OffloadWorkload
from tandem.cost.park_egger.operation_times import OperationTimes
from tandem.cost.park_egger.split_memory import OperationSizes
from tandem.cost.rates import DeviceRates, LinkRates
from tandem.cost.stage import cost_of
from tandem.spec.dtype import DType
from tandem.spec.layer_operations import layer_operations
from tandem.spec.model import ModelSpec
from tandem.spec.operations import Operation
from tandem.spec.parameters import kv_bytes_per_token, layer_matrix_parameters


def kv_fetch(spec: ModelSpec, rows: int, context: int, dtype: DType) -> KVFetch:
    """One layer's KV cache of `rows` sequences of `context` tokens, weights resident."""
    size = dtype.size_bytes
    return KVFetch(rows, context, spec.hidden_size, spec.kv_size, size, size)


def restore_of(spec: ModelSpec, context: int, stored: int, dtype: DType) -> Restore:
    """A request of `context` tokens, the last `stored` of which have KV on the host."""
    operations = layer_operations(spec)
    return Restore(
        context,
        stored,
        float(spec.num_layers * sum(op.flops_per_token for op in operations)),
        float(spec.num_layers * sum(op.flops_per_pair for op in operations)),
        kv_bytes_per_token(spec, dtype),
    )


def offload_workload(
    spec: ModelSpec, *, prompt: int, generate: int, rows: int, batches: int = 1
) -> OffloadWorkload:
    """A block of `rows` sequences in `batches` equal batches; embeddings and head are left out."""
    return OffloadWorkload(
        prompt,
        generate,
        rows,
        spec.num_layers,
        spec.hidden_size,
        spec.kv_size,
        layer_matrix_parameters(spec),
        batches,
    )


def operation_sizes(
    spec: ModelSpec, rows: int, context: int, dtype: DType
) -> tuple[OperationSizes, ...]:
    """Bytes of each operation of a layer for one batch."""
    return tuple(
        OperationSizes(op.weight_bytes(dtype), _kv_bytes(op, rows, context, dtype))
        for op in layer_operations(spec)
    )


def operation_times(
    spec: ModelSpec,
    rows: int,
    context: int,
    dtype: DType,
    *,
    host: DeviceRates,
    accelerator: DeviceRates,
    link: LinkRates,
) -> tuple[OperationTimes, ...]:
    """Times of each operation of a decode step by roofline, where nothing has been profiled.

    Args:
        rows, context: one batch's sequences, and cached tokens of each.
    """
    times: list[OperationTimes] = []
    for op in layer_operations(spec):
        weight, kv = op.weight_bytes(dtype), _kv_bytes(op, rows, context, dtype)
        flops = op.flops(rows, context)
        moved = weight + kv + op.activation_elements(rows) * dtype.size_bytes
        times.append(
            OperationTimes(
                op.name,
                cpu_s=cost_of(flops, moved, 1, host).total_s,
                gpu_s=cost_of(flops, moved, 1, accelerator).total_s,
                weight_link_s=weight / link.bytes_per_s + link.latency_s if weight else 0.0,
                kv_link_s=kv / link.bytes_per_s + link.latency_s if kv else 0.0,
            )
        )
    return tuple(times)


def _kv_bytes(op: Operation, rows: int, context: int, dtype: DType) -> int:
    return op.kv_read_elements(rows * context) * dtype.size_bytes
