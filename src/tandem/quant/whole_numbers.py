"""Weights that another tool quantized, with the scales that it gave them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tandem.quant.quantized_weight import QuantizedWeight
from tandem.spec.weight_format import WeightFormat

_ELEMENTS_AT_ONCE = 1 << 18  # a few temporaries stay in the caches


@dataclass(frozen=True, slots=True)
class WholeNumbers:
    """`w = (q - z) s`, in groups that a format has.

    Raises:
        ValueError: numbers beyond the format's bits, or scales that are not finite.
    """

    format: WeightFormat
    q: Tensor  # integers [outputs, inputs], 0 to `format.largest`
    scales: Tensor  # floating point [outputs, groups]
    zeros: Tensor  # integers [outputs, groups], 0 to `format.largest`

    def __post_init__(self) -> None:
        for name, tensor in (("q", self.q), ("zeros", self.zeros)):
            low, high = (int(bound) for bound in tensor.aminmax())
            if not 0 <= low <= high <= self.format.largest:
                raise ValueError(f"{name} must lie between 0 and {self.format.largest}")
        if not bool(self.scales.isfinite().all()):
            raise ValueError("it has scales that are not finite; download the file again")

    def packed(self) -> QuantizedWeight:
        """As the kernels take it, without loss.

        Raises:
            ValueError: scales that are no numbers of float16.
        """
        wide = self.scales.double()
        lost = int((wide.to(torch.float16).double() != wide).sum())
        if lost:
            raise ValueError(
                f"{lost} of {wide.numel()} scales ({self.scales.dtype}) are no numbers of float16, "
                f"in which scales are kept beside {self.format.bits}-bit weights; use "
                "--quantization none, which dequantizes the checkpoint while it is loaded"
            )
        return QuantizedWeight.from_whole_numbers(self.format, self.q, self.scales, self.zeros)

    def dequantize_into(
        self,
        target: Tensor,  # floating point [outputs, inputs]
    ) -> None:
        """Products in float32, rounded to the target's type; some rows at a time."""
        outputs, inputs = self.q.shape
        count = max(1, _ELEMENTS_AT_ONCE // inputs)
        for first in range(0, outputs, count):
            rows = slice(first, first + count)
            steps = self.q[rows].float().unflatten(1, (-1, self.format.group))
            steps = steps - self.zeros[rows].float()[..., None]
            target[rows] = (steps * self.scales[rows].float()[..., None]).flatten(1)
