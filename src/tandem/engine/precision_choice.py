"""What `--dtype` means on a device (ADR 0007)."""

from dataclasses import dataclass

from tandem.spec.dtype import DType, parse_dtype
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
    wanted: str, spec: ModelSpec, *, host_maths: bool, available_bytes: int
) -> PrecisionChoice:
    """`wanted`, or for `auto` the checkpoint's type, or float32 where the host does the maths.

    Matrix products in 16 bit run several times slower than in float32 on CPUs without AMX, so a
    checkpoint of 16-bit weights is widened there if it takes at most a third of free memory. (One
    row at a time is an exception: it reads half the bytes.)

    Raises:
        ConfigError: `wanted` is no element type.
    """
    if wanted != "auto":
        return PrecisionChoice(Precision.uniform(parse_dtype(wanted)))
    own = Precision.uniform(spec.dtype)
    if not host_maths or spec.dtype is DType.FLOAT32:
        return PrecisionChoice(own)
    size = weight_bytes(spec, DType.FLOAT32)
    if size > available_bytes // 3:
        note = (
            f"computing in {spec.dtype}: float32 weights would take {format_size(size)} of "
            f"{format_size(available_bytes)} free; expect it to be slower per weight than float32"
        )
        return PrecisionChoice(own, note)
    note = (
        f"computing in float32 (checkpoint: {spec.dtype}), which is faster on a CPU for several "
        f"requests at once; for one at a time --dtype {spec.dtype} may be faster"
    )
    return PrecisionChoice(Precision.uniform(DType.FLOAT32), note)
