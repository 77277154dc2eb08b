"""What quantized keys and values cost a device whose kernels do not read them as they lie.

The compiled kernels do. Torch gathers the codes, dequantizes them in passes over temporaries, and
quantizes what is appended (`kernels/quantized_pages.py`, `quant/kv_format.py`): counted here.
"""

from tandem.cost.rates import DeviceRates
from tandem.cost.stage import CostBreakdown, cost_of

# of an element: to float32 (1 byte read, 4 written), times s, plus the minimum (4 and 4 each)
_PASSES_BYTES = 1 + 4 + 8 + 8
_READ_BYTES = 4  # by attention's products
# of 4 bits: two halves (half a byte read and written each), and put in order
_UNPACK_BYTES = 2 + 2
ATTEND_KERNELS = 10
"""Beside attention's own: where codes and pairs lie (4), to gather and widen both, two sums."""
_UNPACK_KERNELS = 3

# of an appended element: K beside V (2 and 2), to float32 (2 and 4), is it finite (4, 1, 1 and 8),
# least and most (4 each), less the minimum, over s, bounded, rounded, 0 where s is (8 each), to a
# code (4 and 1), into its page (1 and 1)
_APPEND_BYTES = 4 + 6 + 14 + 8 + 5 * 8 + 5 + 2
_APPEND_KERNELS = 31


def dequantized_bytes(bits: int) -> float:
    """Moved for each element of keys and values beside its bytes in the page."""
    unpacked = bits == 4
    return bits / 8 + unpacked * _UNPACK_BYTES + _PASSES_BYTES + _READ_BYTES


def dequantizing_kernels(bits: int) -> int:
    """Of one layer's attention."""
    return ATTEND_KERNELS + (bits == 4) * _UNPACK_KERNELS


def quantizing_cost(elements: int, bits: int, rates: DeviceRates) -> CostBreakdown:
    """Of appending so many elements of keys and values to one layer's pages; nothing of none."""
    if not elements:
        return CostBreakdown()
    return cost_of(0, elements * _APPEND_BYTES, quantizing_kernels(bits), rates)


def quantizing_kernels(bits: int) -> int:
    """Of one layer's append."""
    return _APPEND_KERNELS + (bits == 4) * _UNPACK_KERNELS
