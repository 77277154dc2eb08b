"""How a quantized weight lies in memory."""

from dataclasses import dataclass

from tandem.spec.errors import ConfigError

BITS = (4, 8)
GROUPS = (32, 64, 128)
_SCALE_BYTES, _ZERO_BYTES, _FLOAT_SCALE_BYTES = 2, 1, 4


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """`w = (q - z) s` in groups along a row, with unsigned whole `q` and `z` and float16 `s`.

    Or `w = q s`, where `q` is a float of a byte (e4m3) and `s` float32: published scales of FP8 are
    of that type, and there are no zeros.

    Of 8 bits, a byte is one element. Of 4 bits, of each 32 elements of a row, byte i of 16 holds
    element i in its low half and element 16 + i in its high half.

    Attributes:
        bits: of a `q`.
        group: elements of a row that share a scale and a zero.
        floats: `q` are e4m3 floats, of 8 bits.

    Raises:
        ConfigError: numbers that the kernels do not take.
    """

    bits: int
    group: int
    floats: bool = False

    def __post_init__(self) -> None:
        if self.bits not in BITS:
            raise ConfigError(f"weights of {self.bits} bits are not supported: choose 4 or 8")
        if self.group not in GROUPS:
            raise ConfigError(f"groups of {self.group} are not supported: choose 32, 64 or 128")
        if self.floats and self.bits != 8:
            raise ConfigError(f"floating point of {self.bits} bits is not supported: choose 8")

    def __str__(self) -> str:
        return f"fp8:{self.group}" if self.floats else f"int{self.bits}:{self.group}"

    @property
    def largest(self) -> int:
        """The highest `q` that is a whole number."""
        return 2**self.bits - 1

    def check(self, inputs: int) -> None:
        """Raises ConfigError unless rows of that many elements are whole groups."""
        if inputs < 1 or inputs % self.group:
            raise ConfigError(
                f"rows of {inputs} elements cannot be quantized in groups of {self.group}: choose a"
                f" group that divides them"
            )

    def packed_shape(self, outputs: int, inputs: int) -> tuple[int, int]:
        """Of `q`, in bytes."""
        return outputs, inputs * self.bits // 8

    def group_shape(self, outputs: int, inputs: int) -> tuple[int, int]:
        """Of scales."""
        return outputs, inputs // self.group

    def zero_shape(self, outputs: int, inputs: int) -> tuple[int, int]:
        """Of zeros: one for each scale, or none."""
        return outputs, 0 if self.floats else inputs // self.group

    def size_bytes(self, outputs: int, inputs: int) -> int:
        """Of `q`, scales and zeros together."""
        groups = outputs * (inputs // self.group)
        per_group = _FLOAT_SCALE_BYTES if self.floats else _SCALE_BYTES + _ZERO_BYTES
        return outputs * inputs * self.bits // 8 + groups * per_group
