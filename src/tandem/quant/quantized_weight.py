"""A quantized weight, and what it means: the reference that the compiled kernels follow."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tandem.quant.packing import pack_nibbles, unpack_nibbles
from tandem.spec.weight_format import WeightFormat


@dataclass(frozen=True, slots=True)
class QuantizedWeight:
    """`w = (q - z) s`; of floats `w = q s`.

    Attributes:
        format: of the three tensors.
        q: uint8, packed; `format.packed_shape`. Floats (e4m3) are bytes, too.
        scales: float16 [outputs, groups]; beside floats float32.
        zeros: uint8 [outputs, groups]; beside floats [outputs, 0].

    Raises:
        ValueError: tensors that do not fit the format or each other.
        ConfigError: rows that are not whole groups.
    """

    format: WeightFormat
    q: Tensor  # uint8 [outputs, packed inputs]; contiguous
    scales: Tensor  # float16 or float32 [outputs, groups]; contiguous
    zeros: Tensor  # uint8 [outputs, groups or 0]; contiguous

    def __post_init__(self) -> None:
        self.format.check(self.inputs)
        shapes = (
            self.format.packed_shape(self.outputs, self.inputs),
            self.format.group_shape(self.outputs, self.inputs),
            self.format.zero_shape(self.outputs, self.inputs),
        )
        types = (torch.uint8, scale_type(self.format), torch.uint8)
        tensors = (self.q, self.scales, self.zeros)
        for name, tensor, shape, dtype in zip(
            ("q", "scales", "zeros"), tensors, shapes, types, strict=True
        ):
            if tuple(tensor.shape) != shape or tensor.dtype != dtype:
                raise ValueError(
                    f"{name} must be {dtype} {list(shape)}, not {tensor.dtype} {list(tensor.shape)}"
                )

    @staticmethod
    def from_whole_numbers(
        format: WeightFormat,
        q: Tensor,  # uint8 [outputs, inputs], at most `format.largest`
        scales: Tensor,  # [outputs, groups]; values of float16
        zeros: Tensor,  # integers [outputs, groups], 0 to `format.largest`
    ) -> "QuantizedWeight":
        """Pack what another tool quantized (AWQ, GPTQ without act-order): nothing is lost.

        Raises:
            ValueError: numbers that the format cannot hold, or shapes that do not fit.
            ConfigError: rows that are not whole groups.
        """
        format.check(q.shape[1])
        for name, tensor in (("q", q), ("zeros", zeros)):
            if tensor.numel() and not 0 <= int(tensor.min()) <= int(tensor.max()) <= format.largest:
                raise ValueError(f"{name} must lie between 0 and {format.largest}")
        narrow = scales.to(torch.float16)
        if not torch.equal(narrow.double(), scales.double()) or not narrow.isfinite().all():
            raise ValueError(
                "scales must be finite numbers that float16 holds exactly; use another checkpoint"
            )
        q = q.to(torch.uint8).contiguous()
        packed = pack_nibbles(q) if format.bits == 4 else q
        return QuantizedWeight(
            format, packed, narrow.contiguous(), zeros.to(torch.uint8).contiguous()
        )

    @staticmethod
    def allocate(
        format: WeightFormat, shape: tuple[int, int], take: Callable[..., Tensor] = torch.empty
    ) -> "QuantizedWeight":
        """Memory for a weight of `shape` [outputs, inputs], not yet filled.

        Args:
            take: gives memory for `(shape, dtype=...)`.
        """
        return QuantizedWeight(
            format,
            take(format.packed_shape(*shape), dtype=torch.uint8),
            take(format.group_shape(*shape), dtype=scale_type(format)),
            take(format.zero_shape(*shape), dtype=torch.uint8),
        )

    def rows(self, first: int, count: int) -> "QuantizedWeight":
        """A view of some outputs."""
        q, scales, zeros = (t.narrow(0, first, count) for t in (self.q, self.scales, self.zeros))
        return QuantizedWeight(self.format, q, scales, zeros)

    def copy_(self, other: "QuantizedWeight") -> None:
        """Take the numbers of a weight of the same format and shape."""
        if other.format != self.format:
            raise ValueError(f"a weight of {other.format} is none of {self.format}")
        self.q.copy_(other.q)
        self.scales.copy_(other.scales)
        self.zeros.copy_(other.zeros)

    @property
    def outputs(self) -> int:
        """Rows."""
        return self.q.shape[0]

    @property
    def inputs(self) -> int:
        """Elements of a row."""
        return self.q.shape[1] * 8 // self.format.bits

    @property
    def size_bytes(self) -> int:
        """Of the three tensors."""
        return self.format.size_bytes(self.outputs, self.inputs)

    def whole_numbers(self) -> Tensor:
        """`q` of every element, or its float as a byte: uint8 [outputs, inputs]."""
        return unpack_nibbles(self.q) if self.format.bits == 4 else self.q

    def dequantize(self) -> Tensor:
        """Every element, rounded once: float32 [outputs, inputs]."""
        steps = self._steps().view(self.outputs, -1, self.format.group)
        if not self.format.floats:
            steps = steps - self.zeros.float()[..., None]
        return (steps * self.scales.float()[..., None]).view(self.outputs, -1)

    def _steps(self) -> Tensor:
        """`q` of every element, whatever it is: float32 [outputs, inputs]."""
        if self.format.floats:
            return self.q.view(torch.float8_e4m3fn).float()
        return self.whole_numbers().float()


def scale_type(format: WeightFormat) -> torch.dtype:
    """Of a format's scales."""
    return torch.float32 if format.floats else torch.float16
