"""What an engine on the paced emulator holds in which type."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from tandem.spec.dtype import DType
from tandem.spec.precision import Precision


@dataclass(frozen=True, slots=True)
class PacedTypes:
    """Types of weights, and of KV in both tiers.

    Attributes:
        precision: of layers in few bits, if any are; KV on the host is in `host_kv`.
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
        return bool(self.layers) or self.precision.host_kv is not None
