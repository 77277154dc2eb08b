"""Time of stages whose linear maps may be kept in few bits.

The compiled kernels read such a map as it lies and dequantize in registers. Elsewhere torch
dequantizes some rows at a time before their product, in passes over temporaries
(`models/linear.py`, `quant/quantized_weight.py`), which is what is counted here.
"""

from collections.abc import Iterable

from tandem.cost.rates import DeviceRates
from tandem.cost.stage import CostBreakdown, cost_of
from tandem.spec.operations import Operation, WeightShape
from tandem.spec.precision import Precision
from tandem.spec.weight_format import WeightFormat

# of an element: to float32 (1 byte read, 4 written), less z, times s (4 and 4 each), and cast (4)
_PASSES_BYTES = 1 + 4 + 8 + 8 + 4
# of 4 bits: two halves (half a byte read and written for two elements each), and put in order
_UNPACK_BYTES = 1 + 2
_KERNELS, _UNPACK_KERNELS = 8, 3  # of a part of a map; with the product, and its result's copy
_ELEMENTS_AT_ONCE = 1 << 22


class PreciseStage:
    """A stage's operations, summed up as far as that does not depend on the number of tokens.

    Args:
        fused: maps in few bits are dequantized in registers.

    Raises:
        ValueError: an operation of attention.
    """

    def __init__(
        self, operations: Iterable[Operation], precision: Precision, *, fused: bool
    ) -> None:
        self._flops_per_token = self._moved_per_token = 0
        self._weight_bytes, self._kernels = 0.0, 0
        # of experts, few tokens read few
        self._routed: list[tuple[Operation, float, int]] = []
        for op in operations:
            if op.is_attention:
                raise ValueError(f"{op.name} depends on the context; use attention_cost")
            weights = [_weight(weight, precision, fused) for weight in op.weights]
            size, kernels = sum(each[0] for each in weights), sum(each[1] for each in weights)
            self._flops_per_token += op.flops_per_token
            self._moved_per_token += op.activation_elements(1) * precision.activations.size_bytes
            self._kernels += 1
            if op.experts is None:
                self._weight_bytes += size
                self._kernels += kernels
            else:
                self._routed.append((op, size, kernels))

    def cost(self, tokens: int, rates: DeviceRates) -> CostBreakdown:
        """As `stage_cost`, with each weight in its own type."""
        size, kernels = tokens * self._moved_per_token + self._weight_bytes, float(self._kernels)
        for op, weight_bytes, weight_kernels in self._routed:
            share = op.read_weight_share(tokens)
            size += share * weight_bytes
            kernels += share * weight_kernels
        return cost_of(tokens * self._flops_per_token, size, round(kernels), rates)


def _weight(weight: WeightShape, precision: Precision, fused: bool) -> tuple[float, int]:
    """Bytes moved for one tensor, and kernels beside its operation's own."""
    size_bytes = precision.weights.size_bytes
    format = precision.quantized.get(weight.name.removesuffix(".weight"))
    if format is None:
        return weight.elements * size_bytes, 0
    if fused:
        return format.size_bytes(*weight.shape), 0
    return _dequantized(weight, format, precision.activations.size_bytes)


def _dequantized(weight: WeightShape, format: WeightFormat, size_bytes: int) -> tuple[float, int]:
    """By passes, the last of which writes what the product then reads."""
    unpacked = format.bits == 4
    each = _PASSES_BYTES + unpacked * _UNPACK_BYTES + 2 * size_bytes
    parts = -(-weight.elements // _ELEMENTS_AT_ONCE)
    return weight.elements * each, parts * (_KERNELS + unpacked * _UNPACK_KERNELS) - 1
