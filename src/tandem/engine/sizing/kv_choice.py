"""What `--kv-cache-dtype` and `--cpu-kv-dtype` mean for a model."""

from dataclasses import replace

from tandem.memory.quantized_page import MAX_HEAD_DIM, QuantizedPage
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.kv_type import CodeType, KVType, NarrowFloat, parse_kv_type
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision


def choose_kv(wanted: str, spec: ModelSpec, precision: Precision) -> Precision:
    """`precision` with the KV type that the user wants; `auto` leaves it.

    Raises:
        ConfigError: `wanted` is no element type, or the model's heads cannot be quantized.
    """
    if wanted == "auto":
        return precision
    return replace(precision, kv=_read(wanted, spec, "kv_cache_dtype"))


def choose_host_kv(
    wanted: str, spec: ModelSpec, precision: Precision, *, host_only: bool, host_bytes: int
) -> Precision:
    """`precision` with the KV type that the user wants in the host tier; `auto` leaves it.

    Args:
        precision: with the KV type of the other tier.
        host_only: there is no accelerator.
        host_bytes: that the host tier may use; 0: there is none.

    Raises:
        ConfigError: `wanted` is no element type, the model's heads cannot be quantized, or there is
            no host tier beside another whose type it differs from.
    """
    if wanted == "auto":
        return precision
    kv = _read(wanted, spec, "cpu_kv_dtype")
    if kv == precision.kv:
        return precision
    if not host_bytes:
        raise ConfigError(
            f"--cpu-kv-dtype {kv} is for KV in host memory beside an accelerator, and "
            + (
                f"without one all KV is of one type; use --kv-cache-dtype {kv}"
                if host_only
                else "--cpu-memory leaves none there; raise it or leave the flag out"
            ),
            param="cpu_kv_dtype",
        )
    return replace(precision, host_kv=kv)


def _read(wanted: str, spec: ModelSpec, param: str) -> KVType:
    kv = parse_kv_type(wanted, param)
    if isinstance(kv, CodeType) and spec.head_dim > MAX_HEAD_DIM:
        raise ConfigError(
            f"--{param.replace('_', '-')} {kv} takes heads of up to {MAX_HEAD_DIM} elements, and "
            f"the model's have {spec.head_dim}; use float16 or auto",
            param=param,
        )
    return kv


def kv_notes(spec: ModelSpec, precision: Precision, *, in_blocks: bool = False) -> tuple[str, ...]:
    """Says so if the KV cache is quantized, because outputs are then not the model's own, and if
    the host's differs, because they then depend on where a request's KV lies.

    Args:
        in_blocks: of batches, where KV stays as it was first written.
    """
    kv, host = precision.kv, precision.host_kv
    notes: list[str] = []
    if isinstance(kv, CodeType | NarrowFloat):
        where = "" if host is None else " on the accelerator"
        notes.append(
            f"approximate KV cache{where}: {_describe(kv, spec)}; outputs differ from those of an "
            "exact one"
        )
    if host is not None:
        moved = "" if in_blocks else f", and what moves is converted, {_loss(kv, host)}"
        notes.append(
            f"KV on the host: {_describe(host, spec)}, on the accelerator {kv}; outputs depend on "
            f"where a request's KV lies{moved}"
        )
    return tuple(notes)


def _loss(kv: KVType, host: KVType) -> str:
    keeps = host is DType.FLOAT32 and not isinstance(kv, CodeType)
    keeps |= isinstance(kv, NarrowFloat) and isinstance(host, DType)
    return f"{'without' if keeps else 'with'} loss on the way back"


def _describe(kv: KVType, spec: ModelSpec) -> str:
    if isinstance(kv, NarrowFloat):
        return f"{kv} (e4m3) without scales, 0.50 times the bytes of float16"
    if not isinstance(kv, CodeType):
        return kv
    page = QuantizedPage(kv.bits, 1, 1, spec.head_dim)
    share = page.page_bytes / (2 * spec.head_dim * 2)
    return f"{kv} in groups of {page.group_size}, {share:.2f} times the bytes of float16"
