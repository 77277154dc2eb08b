"""GPTQ as AutoGPTQ and GPTQModel write it, of 4 or 8 bits, without act-order.

`qweight` int32 [inputs / per word, outputs]: words run along the inputs. `qzeros` int32 [groups,
outputs / per word] hold z - 1 in the first version of the format, z in `gptq_v2`. `scales` [groups,
outputs]. `g_idx` [inputs] names each input's group; only neighbours may share one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tandem.quant.formats.config_fields import flag, group_size, section, text, whole_number
from tandem.quant.formats.grouping import WHOLE_ROW, are_in_order, format_of, regrouped
from tandem.quant.formats.integers import unpack_words
from tandem.quant.formats.stored_weight import FLOATS, StoredPart
from tandem.quant.whole_numbers import WholeNumbers
from tandem.spec.errors import ModelError
from tandem.spec.weight_format import BITS, WeightFormat

_ACT_ORDER = (
    "its inputs are quantized in the order of their activations (act-order), which is not "
    "supported; use a checkpoint made with desc_act false"
)


@dataclass(frozen=True, slots=True)
class GPTQ:
    """One `quantization_config`, and every map that it applies to.

    Attributes:
        group: -1: a whole row.
        zero_offset: added to stored zeros.
        act_order: groups may be of any inputs: they are looked at.
    """

    bits: int
    group: int
    zero_offset: int
    act_order: bool

    @staticmethod
    def of(config: Mapping[str, Any]) -> "GPTQ":
        """Raises ModelError for what is not supported."""
        bits = whole_number(config, "bits")
        if bits not in BITS:
            raise ModelError(
                f"GPTQ of {bits} bits is not supported; use a checkpoint of 4 or 8 bits"
            )
        layout = text(config, "checkpoint_format") or "gptq"
        if flag(config, "is_marlin_format", False):
            layout = "marlin"
        if layout not in ("gptq", "gptq_v2"):
            raise ModelError(
                f"GPTQ weights repacked as '{layout}' are not supported; use a checkpoint whose "
                "checkpoint_format is gptq or gptq_v2"
            )
        overrides = [pattern for pattern, values in section(config, "dynamic").items() if values]
        if overrides:
            raise ModelError(
                f"GPTQ with settings of its own for '{overrides[0]}' ('dynamic') is not "
                "supported; use a checkpoint with the same for all"
            )
        return GPTQ(
            bits,
            group_size(config, "group_size"),
            1 if layout == "gptq" else 0,
            flag(config, "desc_act", False),
        )

    @property
    def label(self) -> str:
        """Format and precision."""
        group = "rows" if self.group == WHOLE_ROW else f"groups of {self.group}"
        return f"GPTQ of {self.bits} bits in {group}"

    @property
    def is_fp8(self) -> bool:
        """Whole numbers."""
        return False

    def weight(self, module: str, types: Mapping[str, str]) -> "GPTQ | None":
        """Every map with a `qweight`."""
        del module
        return self if "qweight" in types else None

    def format(self, inputs: int) -> WeightFormat:
        """Of the same bits."""
        return format_of(self.bits, self.group, inputs)

    def parts(self, outputs: int, inputs: int) -> Mapping[str, StoredPart]:
        """See the file's head."""
        per_word = 32 // self.bits
        groups = 1 if self.group == WHOLE_ROW else inputs // self.group
        integers = frozenset({"I32"})
        return {
            "qweight": StoredPart(((inputs // per_word, outputs),), integers),
            "qzeros": StoredPart(((groups, outputs // per_word),), integers),
            "scales": StoredPart(((groups, outputs),), FLOATS),
            "g_idx": StoredPart(((inputs,),), integers, optional=not self.act_order),
        }

    def read(self, outputs: int, inputs: int, parts: Mapping[str, Tensor]) -> WholeNumbers:
        """Raises ValueError for act-order, and for zeros that the format's first version lost."""
        del outputs
        if "g_idx" in parts and not are_in_order(parts["g_idx"], self.group):
            raise ValueError(_ACT_ORDER)
        zeros = unpack_words(parts["qzeros"], self.bits).to(torch.int16) + self.zero_offset
        if int(zeros.max()) >= 1 << self.bits:
            raise ValueError(
                "a zero of 0 cannot be told from one beyond the bits in GPTQ's first version; use "
                "a checkpoint of gptq_v2, or a symmetric one"
            )
        q = unpack_words(parts["qweight"].t(), self.bits)
        return regrouped(self.bits, q, parts["scales"].t(), zeros.t())
