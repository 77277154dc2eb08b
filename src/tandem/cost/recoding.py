"""Time that few bits cost beside their bytes: kernels of their own on an accelerator, and more
arithmetic in the CPU's attention.
"""

from collections.abc import Iterable

from tandem.cost.rates import DeviceRates
from tandem.cost.stage import AttentionWork, CostBreakdown, cost_of
from tandem.spec.operations import Operation

CPU_CODE_FLOPS = 4.0
"""Of an element of keys and values, to make it of its code in registers, in multiply-adds' rate.

By what the compiled kernels were measured at (`benchmarks/results/README.md`, decode attention):
int4 pages are read at 1.74 to 1.78 times the tokens of float16 without groups, at 0.92 to 1.04 with
four queries per key, and at 0.82 to 0.86 with eight. Beside the 2 FLOPs of an element and a query,
4 more give 1.75, 0.9 and 0.8.
"""
_FP32_BYTES = 4


def quantized_cost(size_bytes: float, rates: DeviceRates) -> CostBreakdown:
    """A kernel that reads elements and writes their codes.

    Args:
        size_bytes: of both together.
    """
    return cost_of(0, size_bytes / rates.quantize_share, 1, rates)


def dequantized_cost(size_bytes: float, rates: DeviceRates) -> CostBreakdown:
    """A kernel that reads codes and writes elements; as `quantized_cost`."""
    return cost_of(0, size_bytes / rates.dequantize_share, 1, rates)


def coded_attention_cost(
    operations: Iterable[Operation],
    work: AttentionWork,
    token_bytes: float,
    rates: DeviceRates,
    code_flops: float = CPU_CODE_FLOPS,
) -> CostBreakdown:
    """Attention of one layer over pages of codes, dequantized in registers.

    Args:
        token_bytes: of one token's keys and values in pages, scales included.
        code_flops: of an element; 0: an accelerator has arithmetic to spare while it reads.
    """
    flops, size = 0.0, work.keys * token_bytes
    for op in operations:
        if op.is_attention:
            flops += op.flops_per_pair * work.pairs
            flops += code_flops * op.kv_read_elements(work.keys)
            size += work.tokens * sum(buffer.width for buffer in op.writes) * _FP32_BYTES
    return cost_of(flops, size, 1, rates)
