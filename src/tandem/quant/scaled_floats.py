"""Weights of 8-bit floating point (e4m3), with the scales that another tool gave them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tandem.quant.quantized_weight import QuantizedWeight
from tandem.spec.weight_format import WeightFormat

_NOT_FINITE = "it holds numbers that are not finite; download the file again"


@dataclass(frozen=True, slots=True)
class ScaledFloats:
    """`w = q s`, with a scale for some inputs of each output.

    Attributes:
        columns: inputs that share a scale; of the last scale of a row perhaps fewer.
    """

    q: Tensor  # float8_e4m3fn [outputs, inputs]
    scales: Tensor  # float32 [outputs, ceil(inputs / columns)]
    columns: int

    def dequantize(self) -> Tensor:
        """Products in float32: [outputs, inputs].

        Raises:
            ValueError: numbers that are not finite.
        """
        inputs = self.q.shape[1]
        wide = self.scales.repeat_interleave(self.columns, 1)[:, :inputs]
        weight = self.q.float().mul_(wide)
        if not bool(torch.isfinite(weight).all()):
            raise ValueError(_NOT_FINITE)
        return weight

    def packed(self, format: WeightFormat) -> QuantizedWeight:
        """As the kernels take it, without loss; a scale for each of the format's groups, which lie
        within what shares one.

        Raises:
            ValueError: numbers that are not finite.
        """
        outputs, inputs = self.q.shape
        groups = torch.arange(inputs // format.group) * format.group // self.columns
        scales = self.scales[:, groups].contiguous()
        codes = self.q.contiguous().view(torch.uint8)
        nan = (codes & 0x7F) == 0x7F  # the only codes that are no numbers
        largest = self.scales.abs().max() * torch.finfo(torch.float8_e4m3fn).max
        if bool(nan.any()) or not bool(scales.isfinite().all()):
            raise ValueError(_NOT_FINITE)
        if not bool(largest.isfinite()):  # products that float32 does not hold, perhaps
            self.dequantize()
        zeros = codes.new_empty(format.zero_shape(outputs, inputs))
        return QuantizedWeight(format, codes, scales, zeros)
