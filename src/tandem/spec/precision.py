"""Element types of an engine's weights, activations and KV pages."""

from dataclasses import dataclass

from tandem.spec.dtype import DType
from tandem.spec.kv_type import KVType


@dataclass(frozen=True, slots=True)
class Precision:
    """Which element type holds what; sums are always in float32.

    Attributes:
        weights: as they are kept in memory.
        activations: between operations.
        kv: of the KV pages, in every tier.
    """

    weights: DType
    activations: DType
    kv: KVType

    @staticmethod
    def uniform(dtype: DType) -> "Precision":
        """One type for everything."""
        return Precision(dtype, dtype, dtype)

    def __str__(self) -> str:
        if self.weights == self.activations == self.kv:
            return str(self.weights)
        if self.activations == self.kv:
            return f"{self.weights} weights, {self.activations} activations and KV"
        return f"{self.weights} weights, {self.activations} activations, {self.kv} KV"
