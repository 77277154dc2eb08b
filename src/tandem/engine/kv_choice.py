"""What `--kv-cache-dtype` means for a model."""

from dataclasses import replace

from tandem.memory.quantized_page import MAX_HEAD_DIM, QuantizedPage
from tandem.spec.errors import ConfigError
from tandem.spec.kv_type import CodeType, parse_kv_type
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision


def choose_kv(wanted: str, spec: ModelSpec, precision: Precision) -> Precision:
    """`precision` with the KV type that the user wants; `auto` leaves it.

    Raises:
        ConfigError: `wanted` is no element type, or the model's heads cannot be quantized.
    """
    if wanted == "auto":
        return precision
    kv = parse_kv_type(wanted)
    if isinstance(kv, CodeType) and spec.head_dim > MAX_HEAD_DIM:
        raise ConfigError(
            f"--kv-cache-dtype {kv} takes heads of up to {MAX_HEAD_DIM} elements, and the model's "
            f"have {spec.head_dim}; use float16 or auto",
            param="kv_cache_dtype",
        )
    return replace(precision, kv=kv)


def kv_notes(spec: ModelSpec, precision: Precision) -> tuple[str, ...]:
    """Says so if the KV cache is quantized, because outputs are then not the model's own."""
    kv = precision.kv
    if not isinstance(kv, CodeType):
        return ()
    page = QuantizedPage(kv.bits, 1, 1, spec.head_dim)
    share = page.page_bytes / (2 * spec.head_dim * 2)
    return (
        f"approximate KV cache: {kv} in groups of {page.group_size}, {share:.2f} times the bytes of"
        " float16; outputs differ from those of an exact one",
    )
