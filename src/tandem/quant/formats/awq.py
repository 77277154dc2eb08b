"""AWQ as AutoAWQ writes it for its GEMM kernel: 4 bits, packed along the outputs.

`qweight` int32 [inputs, outputs / 8] and `qzeros` int32 [groups, outputs / 8]: of each 8 outputs, a
word holds 0, 2, 4, 6, 1, 3, 5, 7, from its lowest bits on. `scales` [groups, outputs].
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tandem.quant.formats.config_fields import flag, group_size, text, whole_number
from tandem.quant.formats.grouping import WHOLE_ROW, format_of, regrouped
from tandem.quant.formats.integers import unpack_words
from tandem.quant.formats.stored_weight import FLOATS, StoredPart
from tandem.quant.whole_numbers import WholeNumbers
from tandem.spec.errors import ModelError
from tandem.spec.weight_format import WeightFormat

_BITS, _PER_WORD = 4, 8
_PLACES = [0, 4, 1, 5, 2, 6, 3, 7]  # of outputs 0 to 7 in a word


@dataclass(frozen=True, slots=True)
class AWQ:
    """One `quantization_config`, and every map that it applies to."""

    group: int

    @staticmethod
    def of(config: Mapping[str, Any]) -> "AWQ":
        """Raises ModelError for what is not supported."""
        bits = whole_number(config, "bits", "w_bit")
        if bits != _BITS:
            raise ModelError(f"AWQ of {bits} bits is not supported; use a checkpoint of 4 bits")
        layout = text(config, "version") or "gemm"
        if layout != "gemm":
            raise ModelError(
                f"AWQ weights packed for '{layout}' are not supported; use a checkpoint whose "
                "version is gemm"
            )
        if not flag(config, "zero_point", True):
            raise ModelError(
                "AWQ without zero points is not supported; use a checkpoint with zero_point true"
            )
        return AWQ(group_size(config, "group_size", "q_group_size"))

    @property
    def label(self) -> str:
        """Format and precision."""
        group = "rows" if self.group == WHOLE_ROW else f"groups of {self.group}"
        return f"AWQ of {_BITS} bits in {group}"

    @property
    def is_fp8(self) -> bool:
        """Whole numbers."""
        return False

    def weight(self, module: str, types: Mapping[str, str]) -> "AWQ | None":
        """Every map with a `qweight`."""
        del module
        return self if "qweight" in types else None

    def format(self, inputs: int) -> WeightFormat:
        """Of the same bits."""
        return format_of(_BITS, self.group, inputs)

    def parts(self, outputs: int, inputs: int) -> Mapping[str, StoredPart]:
        """See the file's head."""
        groups = 1 if self.group == WHOLE_ROW else inputs // self.group
        integers = frozenset({"I32"})
        return {
            "qweight": StoredPart(((inputs, outputs // _PER_WORD),), integers),
            "qzeros": StoredPart(((groups, outputs // _PER_WORD),), integers),
            "scales": StoredPart(((groups, outputs),), FLOATS),
        }

    def read(self, outputs: int, inputs: int, parts: Mapping[str, Tensor]) -> WholeNumbers:
        """Raises ValueError for scales that are not finite."""
        del outputs, inputs
        q, zeros = (_in_order(unpack_words(parts[n], _BITS)) for n in ("qweight", "qzeros"))
        return regrouped(_BITS, q.t(), parts["scales"].t(), zeros.t())


def _in_order(
    values: Tensor,  # uint8 [rows, outputs] as they lie in words
) -> Tensor:
    return values.unflatten(1, (-1, _PER_WORD))[:, :, _PLACES].flatten(1)
