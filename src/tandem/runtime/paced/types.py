"""What an engine on the paced emulator holds in which type."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from tandem.spec.dtype import DType
from tandem.spec.kv_type import CodeType
from tandem.spec.precision import Precision


@dataclass(frozen=True, slots=True)
class PacedTypes:
    """Types of weights, and of KV in both tiers.

    Attributes:
        precision: of layers in few bits, if any are; of KV, on the host in `host_kv` if that is
            another.
        layers: whose maps are in few bits.
    """

    precision: Precision
    layers: Collection[int] = frozenset()

    @staticmethod
    def plain(dtype: DType) -> "PacedTypes":
        """Nothing in few bits."""
        return PacedTypes(Precision.uniform(dtype))

    def of_layer(self, layer: int) -> Precision:
        """Of a layer's weights."""
        return self.precision if layer in self.layers else replace(self.precision, quantized={})

    @property
    def has_codes(self) -> bool:
        """Whether anything is in few bits."""
        kept = (self.precision.kv, self.precision.host_kv)
        return bool(self.layers) or any(isinstance(kind, CodeType) for kind in kept)
