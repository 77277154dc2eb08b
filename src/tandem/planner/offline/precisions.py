"""Which element types an offline plan may choose: few bits only where the user allows them."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from tandem.plan.offline import QUANTIZED_LAYERS, QuantizedLayers
from tandem.spec.kv_type import CodeType
from tandem.spec.precision import Precision


class KVTypes(NamedTuple):
    """What KV on the accelerator and on the host is kept in; None: not in few bits."""

    device: CodeType | None = None
    host: CodeType | None = None


@dataclass(frozen=True, slots=True)
class Precisions:
    """Of one question.

    Attributes:
        allowed: with all few bits that were asked for.
        plain: without.
    """

    allowed: Precision
    plain: Precision

    @staticmethod
    def of(allowed: Precision) -> "Precisions":
        """By what was asked for."""
        kv = allowed.activations if isinstance(allowed.kv, CodeType) else allowed.kv
        return Precisions(allowed, replace(allowed, quantized={}, kv=kv))

    @property
    def layer_choices(self) -> tuple[QuantizedLayers, ...]:
        """Which layers may be quantized."""
        return QUANTIZED_LAYERS if self.allowed.quantized else ("none",)

    @property
    def kv_choices(self) -> tuple[KVTypes, ...]:
        """None of KV in few bits, that on the host, or all of it."""
        kv = self.allowed.kv
        if not isinstance(kv, CodeType):
            return (KVTypes(),)
        return KVTypes(), KVTypes(None, kv), KVTypes(kv, kv)

    def of_layer(self, quantized: QuantizedLayers, *, streamed: bool) -> Precision:
        """Of a layer's weights, KV as on the accelerator."""
        few = quantized == "all" or (quantized == "streamed" and streamed)
        return replace(self.plain, quantized=self.allowed.quantized) if few else self.plain
