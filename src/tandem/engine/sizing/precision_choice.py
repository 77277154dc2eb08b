"""What `--dtype` means on a device."""

from dataclasses import dataclass

from tandem.spec.dtype import DType, parse_dtype
from tandem.spec.float_range import needs_range
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import weight_bytes
from tandem.spec.precision import Precision
from tandem.spec.units import format_size


@dataclass(frozen=True, slots=True)
class PrecisionChoice:
    """The element types, and a line about them if they are not the checkpoint's."""

    precision: Precision
    note: str | None = None


def choose_precision(
    wanted: str,
    spec: ModelSpec,
    *,
    host_maths: bool,
    compiled: bool,
    available_bytes: int,
    has_bfloat16: bool = True,
) -> PrecisionChoice:
    """`wanted`, or for `auto` the checkpoint's type; ADR 0010 for maths on the host.

    Args:
        host_maths: the CPU executes the layers.
        compiled: by the compiled kernels, which read weights of any type and compute in float32.
        has_bfloat16: the accelerator has units for it.

    Raises:
        ConfigError: `wanted` is no element type.
    """
    dtype = spec.dtype if wanted == "auto" else parse_dtype(wanted)
    if host_maths and compiled:
        return _compiled(dtype, spec, is_default=wanted == "auto")
    if host_maths and wanted == "auto" and dtype is not DType.FLOAT32:
        return _in_torch(spec, available_bytes)
    if wanted == "auto" and dtype is DType.BFLOAT16 and not has_bfloat16:
        return _without_bfloat16(spec)
    return PrecisionChoice(Precision.uniform(dtype))


def _without_bfloat16(spec: ModelSpec) -> PrecisionChoice:
    """As plans for such a GPU have it: products in bfloat16 take several times as long there."""
    if needs_range(spec):
        note = (
            "computing in bfloat16, which this GPU has no units for: this model's activations "
            "exceed float16's range"
        )
        return PrecisionChoice(Precision.uniform(DType.BFLOAT16), note)
    note = (
        "computing in float16: this GPU has no units for the checkpoint's bfloat16, which --dtype "
        "bfloat16 keeps"
    )
    return PrecisionChoice(Precision.uniform(DType.FLOAT16), note)


def _compiled(dtype: DType, spec: ModelSpec, *, is_default: bool) -> PrecisionChoice:
    precision = Precision(dtype, DType.FLOAT32, DType.FLOAT32 if is_default else dtype)
    note = None
    if is_default and dtype is not DType.FLOAT32:
        note = f"{spec.dtype} weights as in the checkpoint; activations in float32"
    return PrecisionChoice(precision, note)


def _in_torch(spec: ModelSpec, available_bytes: int) -> PrecisionChoice:
    """Sixteen-bit products of torch run several times slower than in float32 on CPUs without AMX:
    such a checkpoint is widened if it then takes at most a third of free memory.
    """
    size = weight_bytes(spec, DType.FLOAT32)
    if size > available_bytes // 3:
        note = (
            f"computing in {spec.dtype}: float32 weights would take {format_size(size)} of "
            f"{format_size(available_bytes)} free; expect it to be slower per weight than float32"
        )
        return PrecisionChoice(Precision.uniform(spec.dtype), note)
    note = f"computing in float32 (checkpoint: {spec.dtype}), which is faster on a CPU"
    return PrecisionChoice(Precision.uniform(DType.FLOAT32), note)
