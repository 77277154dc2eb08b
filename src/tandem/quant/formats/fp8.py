"""Weights in 8-bit floating point (e4m3): a scale for all, for each output, or for each block.

`weight` F8_E4M3 [outputs, inputs] and `weight_scale`, or `weight_scale_inv` where blocks are used,
which is multiplied by all the same. Triton's kernels read them so; elsewhere they become floating
point as they are loaded.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tandem.quant.formats.config_fields import text
from tandem.quant.formats.stored_weight import FLOATS, Shape, StoredPart
from tandem.quant.scaled_floats import ScaledFloats
from tandem.spec.errors import ModelError
from tandem.spec.weight_format import GROUPS, WeightFormat

_TYPE = "F8_E4M3"
_SCALES = ("weight_scale", "weight_scale_inv")


@dataclass(frozen=True, slots=True)
class FP8Weight:
    """One map.

    Attributes:
        scale: what the name of its scale ends in.
        block: outputs and inputs of a block; None: a scale for all, or for each output.
    """

    scale: str
    block: tuple[int, int] | None

    def format(self, inputs: int) -> WeightFormat | None:
        """In the largest groups that lie within a block and divide rows; None if there are none."""
        columns = inputs if self.block is None else self.block[1]
        fitting = [g for g in GROUPS if columns % g == 0 and inputs % g == 0]
        return WeightFormat(8, max(fitting), floats=True) if fitting else None

    def parts(self, outputs: int, inputs: int) -> Mapping[str, StoredPart]:
        """See the file's head; zero points, which some tools write, must be 0."""
        scales: tuple[Shape, ...] = ((), (1,), (1, 1), (outputs,), (outputs, 1))
        if self.block is not None:
            rows, columns = self.block
            scales = ((-(-outputs // rows), -(-inputs // columns)),)
        return {
            "weight": StoredPart(((outputs, inputs),), frozenset({_TYPE})),
            self.scale: StoredPart(scales, FLOATS),
            "weight_zero_point": StoredPart(scales, FLOATS | {_TYPE, "I8"}, optional=True),
        }

    def read(self, outputs: int, inputs: int, parts: Mapping[str, Tensor]) -> ScaledFloats:
        """The numbers, with the scale of each block.

        Raises:
            ValueError: zero points.
        """
        del inputs
        zero = parts.get("weight_zero_point")
        if zero is not None and bool(zero.float().any()):
            raise ValueError(
                "zero points of 8-bit floating point are not supported; use a checkpoint of "
                "symmetric FP8"
            )
        scales, codes = parts[self.scale].float(), parts["weight"]
        if self.block is None:
            scales = scales.view(-1, 1).expand(outputs, 1)
            return ScaledFloats(codes, scales, codes.shape[1])
        rows, columns = self.block
        return ScaledFloats(codes, scales.repeat_interleave(rows, 0)[:outputs], columns)


@dataclass(frozen=True, slots=True)
class FP8:
    """One `quantization_config`, and every map whose weight is of that type."""

    block: tuple[int, int] | None

    @staticmethod
    def of(config: Mapping[str, Any]) -> "FP8":
        """Raises ModelError for what is not supported."""
        kind = text(config, "fmt", "e4m3")
        if kind not in ("e4m3", "float8_e4m3fn"):
            raise ModelError(f"FP8 of the kind '{kind}' is not supported; use a checkpoint of e4m3")
        block = config.get("weight_block_size")
        return FP8(None if block is None else block_of(block))

    @property
    def label(self) -> str:
        """Format and precision."""
        return "FP8" if self.block is None else f"FP8 in blocks of {self.block[0]}x{self.block[1]}"

    @property
    def is_fp8(self) -> bool:
        """All of it."""
        return True

    def weight(self, module: str, types: Mapping[str, str]) -> FP8Weight | None:
        """Every map of that type."""
        return fp8_weight(module, types, self.block)


def fp8_weight(
    module: str, types: Mapping[str, str], block: tuple[int, int] | None
) -> FP8Weight | None:
    """How a map lies in a checkpoint, if its weight is of that type.

    Raises:
        ModelError: it has no scale.
    """
    if types.get("weight") != _TYPE:
        return None
    scale = next((name for name in _SCALES if name in types), None)
    if scale is None:
        raise ModelError(
            f"'{module}.weight' is of {_TYPE}, but there is no '{module}.weight_scale'; "
            "config.json and weights do not belong together, or the download is incomplete"
        )
    return FP8Weight(scale, block)


def block_of(value: Any) -> tuple[int, int]:
    """Outputs and inputs of a block of weights.

    Raises:
        ModelError: not two positive integers.
    """
    if (
        not isinstance(value, list)
        or len(value) != 2
        or not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in value)
    ):
        raise ModelError(
            f"the quantization's blocks of weights are {value!r}, not two positive integers; "
            "download config.json again"
        )
    return value[0], value[1]
