"""What an engine of an offline plan holds in which type, on the paced emulator."""

from dataclasses import replace

from tandem.plan.offline import OfflinePlan
from tandem.plan.weights import streamed_layers
from tandem.runtime.paced.types import PacedTypes
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.kv_type import CodeType, parse_kv_type
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision
from tandem.spec.quantized_maps import uniform_formats

_CODES = {f"int{bits}": bits for bits in (8, 4)}


def block_types(plan: OfflinePlan, spec: ModelSpec, dtype: DType) -> PacedTypes:
    """Of a plan's layers and of its KV. Nothing is loaded, so that no checkpoint has
    other types than the plan; what is checked is that they can be emulated.

    Args:
        dtype: of activations, and of all that is not in few bits.

    Raises:
        ConfigError: types that are not emulated.
    """
    precision = Precision.uniform(dtype)
    if plan.kv_dtype != str(dtype):
        kept = parse_kv_type(plan.kv_dtype, "kv_cache_dtype")
        if not isinstance(kept, CodeType):
            raise _not_paced(f"KV on the accelerator in {kept}")
        precision = replace(precision, kv=kept)
    if plan.host_kv_dtype != plan.kv_dtype:
        kept = parse_kv_type(plan.host_kv_dtype, "cpu_kv_dtype")
        if not isinstance(kept, CodeType):
            raise _not_paced(f"KV on the host in {kept}")
        precision = replace(precision, host_kv=kept)
    if plan.quantized_layers == "none":
        return PacedTypes(precision)
    kind, _, group = plan.quantization.partition(":")
    if kind not in _CODES or not group.isdecimal():
        raise _not_paced(f"weights in {plan.quantization}")
    precision = replace(precision, quantized=uniform_formats(spec, _CODES[kind], int(group)))
    layers = range(spec.num_layers)
    if plan.quantized_layers == "streamed":
        return PacedTypes(precision, frozenset(streamed_layers(plan.weights).layers))
    return PacedTypes(precision, frozenset(layers))


def _not_paced(what: str) -> ConfigError:
    return ConfigError(f"{what} cannot be paced, because its costs are not modelled", param="plan")
