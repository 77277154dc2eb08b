"""What every format says about a quantized linear map in a checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from tandem.quant.scaled_floats import ScaledFloats
from tandem.quant.whole_numbers import WholeNumbers
from tandem.spec.weight_format import WeightFormat

Shape = tuple[int, ...]
FLOATS = frozenset({"F32", "F16", "BF16"})


@dataclass(frozen=True, slots=True)
class StoredPart:
    """One tensor of a map's weight.

    Attributes:
        shapes: any of these.
        types: any of these, by safetensors' names.
        optional: may be absent.
    """

    shapes: tuple[Shape, ...]
    types: frozenset[str]
    optional: bool = False


class StoredWeight(Protocol):
    """How one map's weight lies in a checkpoint."""

    def format(self, inputs: int) -> WeightFormat | None:
        """What holds it without loss; None if only floating point of 16 bits or more does.

        Raises:
            ModelError: nothing that the kernels take does.
        """
        ...

    def parts(self, outputs: int, inputs: int) -> Mapping[str, StoredPart]:
        """Its tensors by what their names end in."""
        ...

    def read(
        self, outputs: int, inputs: int, parts: Mapping[str, Tensor]
    ) -> WholeNumbers | ScaledFloats:
        """From tensors that are as `parts` says.

        Raises:
            ValueError: numbers that cannot be held exactly, or that mean something unsupported.
        """
        ...


class StoredQuantization(Protocol):
    """What `quantization_config` in a config.json says."""

    @property
    def label(self) -> str:
        """Format and precision, for messages."""
        ...

    @property
    def is_fp8(self) -> bool:
        """All that is quantized is 8-bit floating point."""
        ...

    def weight(self, module: str, types: Mapping[str, str]) -> StoredWeight | None:
        """How a map lies in the checkpoint; None if it was left as it is.

        Args:
            module: the checkpoint's name of it.
            types: safetensors' names of its tensors' types, by what their names end in.

        Raises:
            ModelError: in a way that is not supported.
        """
        ...
