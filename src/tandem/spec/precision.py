"""Element types of an engine's weights, activations and KV pages."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tandem.spec.dtype import DType
from tandem.spec.kv_type import KVType
from tandem.spec.weight_format import WeightFormat


@dataclass(frozen=True, slots=True)
class Precision:
    """Which element type holds what; sums are always in float32.

    Attributes:
        weights: as they are kept in memory, but for the quantized ones.
        activations: between operations.
        kv: of the KV pages, in every tier but where `host_kv` says otherwise.
        host_kv: of KV pages in the host tier; None: as `kv`.
        quantized: the layers' linear maps that are kept in few bits, by canonical name (`q`).
        int8_activations: what goes into quantized maps is rounded to 8 bits, group by group.
    """

    weights: DType
    activations: DType
    kv: KVType
    quantized: Mapping[str, WeightFormat] = field(default_factory=dict[str, WeightFormat])
    int8_activations: bool = False
    host_kv: KVType | None = None

    @staticmethod
    def uniform(dtype: DType) -> "Precision":
        """One type for everything."""
        return Precision(dtype, dtype, dtype)

    @property
    def holds_floats(self) -> bool:
        """Some weights are floats of a byte (e4m3), which the compiled kernels do not read."""
        return any(format.floats for format in self.quantized.values())

    def __str__(self) -> str:
        host = "" if self.host_kv is None else f", {self.host_kv} KV on the host"
        return self._without_host() + host

    def _without_host(self) -> str:
        formats = sorted({str(format) for format in self.quantized.values()})
        weights = " and ".join([*formats, str(self.weights)])
        rounded = ", rounded to int8 in the layers' maps" if self.int8_activations else ""
        if weights == self.activations == self.kv:
            return weights
        if self.activations == self.kv and not rounded:
            return f"{weights} weights, {self.activations} activations and KV"
        return f"{weights} weights, {self.activations} activations{rounded}, {self.kv} KV"
