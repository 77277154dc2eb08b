"""Element types of the KV cache, without torch."""

from enum import StrEnum

from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError


class NarrowFloat(StrEnum):
    """Keys and values rounded to a float of one byte, without scales."""

    FP8 = "fp8"  # e4m3: largest 448, smallest 2^-9

    @property
    def size_bytes(self) -> int:
        """Bytes per element."""
        return 1


class CodeType(StrEnum):
    """Quantized keys and values: integer codes with scales (`memory.quantized_page`)."""

    INT8 = "int8"
    INT4 = "int4"

    @property
    def bits(self) -> int:
        """Bits per code."""
        return 8 if self is CodeType.INT8 else 4


KVType = DType | NarrowFloat | CodeType
"""What a KV page holds."""


def parse_kv_type(text: str, param: str = "kv_cache_dtype") -> KVType:
    """Read a KV element type such as `float16` or `int8`.

    Args:
        param: whose value it is.

    Raises:
        ConfigError: the name is not one of the supported types.
    """
    for kind in (DType, NarrowFloat, CodeType):
        if text in list(kind):
            return kind(text)
    known = ", ".join([*DType, *NarrowFloat, *CodeType])
    raise ConfigError(f"unknown {param} '{text}'; use one of: auto, {known}", param=param)
