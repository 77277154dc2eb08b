"""How fast tensors are quantized and dequantized (LM-Offload, equations 12 to 16 and 20 to 24)."""

from dataclasses import dataclass

# (x - min) / (max - min) * (2^b - 1): equation 10, and its inverse, equation 11.
_NORMALISE_FLOPS = 3


@dataclass(frozen=True, slots=True)
class QuantRates:
    """What one device reaches."""

    quantize_elements_per_s: float
    dequantize_elements_per_s: float


def published_rates(
    frequency_hz: float, flops_per_s: float, memory_bytes_per_s: float
) -> QuantRates:
    """The paper's form: an element's minimum and maximum, normalisation and copy, one by one.

    Equations 13 and 21 take a cycle per element whatever the number of cores; equations 15 and 23
    divide elements, not bytes, by a bandwidth. Dequantization has no first term (equations 16, 24);
    the text wants a frequency in its second term where equation 14 has FLOP/s: the equation is
    followed.

    For reference: no plan is made by it, since it is 20 times too fast for figure 3 (see
    `docs/papers/lm-offload.md`). Plans take what a profile measured, or `cost/quantized.py`: bytes
    and instructions of the kernels that read a format.
    """
    element_s = _NORMALISE_FLOPS / flops_per_s + 1 / memory_bytes_per_s
    return QuantRates(1 / (1 / frequency_hz + element_s), 1 / element_s)


def memory_bound_rates(bits: int, memory_bytes_per_s: float) -> QuantRates:
    """Kernels of their own that do nothing but read one form and write the other, in 16 bits."""
    elements_per_s = memory_bytes_per_s / (bits / 8 + 2)
    return QuantRates(elements_per_s, elements_per_s)
