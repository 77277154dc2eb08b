"""Which element type to compute in when the user leaves it open."""

from dataclasses import dataclass

from tandem.spec.dtype import DType, parse_dtype
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import weight_bytes
from tandem.spec.units import format_size


@dataclass(frozen=True, slots=True)
class DTypeChoice:
    """The element type, and a line about it if it is not the checkpoint's."""

    dtype: DType
    note: str | None = None


def choose_dtype(
    wanted: str, spec: ModelSpec, *, host_maths: bool, available_bytes: int
) -> DTypeChoice:
    """`wanted`, or for `auto` the checkpoint's type, or float32 where the host does the maths.

    Matrix products in 16 bit run several times slower than in float32 on CPUs without AMX, so a
    checkpoint of 16-bit weights is widened there if it takes at most a third of free memory. (One
    row at a time is an exception: it reads half the bytes.)

    Raises:
        ConfigError: `wanted` is no element type.
    """
    if wanted != "auto":
        return DTypeChoice(parse_dtype(wanted))
    if not host_maths or spec.dtype is DType.FLOAT32:
        return DTypeChoice(spec.dtype)
    size = weight_bytes(spec, DType.FLOAT32)
    if size > available_bytes // 3:
        note = (
            f"computing in {spec.dtype}: float32 weights would take {format_size(size)} of "
            f"{format_size(available_bytes)} free; expect it to be slower per weight than float32"
        )
        return DTypeChoice(spec.dtype, note)
    note = (
        f"computing in float32 (checkpoint: {spec.dtype}), which is faster on a CPU for several "
        f"requests at once; for one at a time --dtype {spec.dtype} may be faster"
    )
    return DTypeChoice(DType.FLOAT32, note)
