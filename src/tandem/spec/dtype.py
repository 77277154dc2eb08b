"""Element types, without torch."""

from enum import StrEnum

from tandem.spec.errors import ConfigError


class DType(StrEnum):
    """Element type of weights, activations and KV pages; values are torch's names."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"

    @property
    def size_bytes(self) -> int:
        """Bytes per element."""
        return 4 if self is DType.FLOAT32 else 2


_ALIASES = {
    "fp32": "float32",
    "float": "float32",
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
}


def parse_dtype(text: str) -> DType:
    """Read a dtype name such as `float32`, `bf16` or `half`.

    Raises:
        ConfigError: the name is not one of the supported types.
    """
    name = _ALIASES.get(text.lower(), text.lower())
    try:
        return DType(name)
    except ValueError:
        known = ", ".join(d.value for d in DType)
        raise ConfigError(
            f"unknown dtype '{text}'; use one of: auto, {known}", param="dtype"
        ) from None
