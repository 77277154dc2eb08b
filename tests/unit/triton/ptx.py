"""A few PTX instructions, computed by Python: what Triton's interpreter lacks."""

from collections.abc import Callable, Mapping

import numpy as np
import torch

Registers = dict[str, int]


def run(text: str, given: Mapping[str, int]) -> Registers:
    """Registers after the instructions of an `inline_asm_elementwise`, by name; 32 bits each."""
    held = dict(given)
    for line in text.replace("{", "").replace("}", "").split(";"):
        if line.strip() and not line.strip().startswith(".reg"):
            name, operands = line.split(None, 1)
            target, *sources = (each.strip() for each in operands.split(","))
            values = [held[each] if each in held else int(each, 0) for each in sources]
            held[target] = _INSTRUCTIONS[name](*values)
    return held


def halves(register: int, dtype: torch.dtype) -> list[float]:
    """The two numbers of 16 bits in a register."""
    each = np.array([register & 0xFFFF, register >> 16], dtype=np.uint16).view(np.int16)
    return torch.from_numpy(each).view(dtype).tolist()


def single(register: int) -> float:
    """A register as float32."""
    return float(np.uint32(register).view(np.float32))


def _packed(numbers: list[float], dtype: torch.dtype) -> int:
    bits = torch.tensor(numbers, dtype=torch.float64).to(dtype).view(torch.int16).numpy()
    low, high = bits.view(np.uint16).tolist()
    return low | high << 16


def _permuted(first: int, second: int, selector: int) -> int:
    source = first.to_bytes(4, "little") + second.to_bytes(4, "little")
    chosen = [selector >> 4 * place & 15 for place in range(4)]
    assert max(chosen) < 8  # the others would repeat signs
    return int.from_bytes(bytes(source[each] for each in chosen), "little")


def _looked_up(a: int, b: int, c: int, table: int) -> int:
    assert table == 0xEA
    return a & b | c


def _fused(dtype: torch.dtype) -> Callable[[int, int, int], int]:
    def fma(a: int, b: int, c: int) -> int:
        numbers = (halves(each, dtype) for each in (a, b, c))
        # products of 16 bits are exact in float64, and here sums are, too
        return _packed([x * y + z for x, y, z in zip(*numbers, strict=True)], dtype)

    return fma


def _difference(a: int, b: int) -> int:
    return int(np.float32(single(a) - single(b)).view(np.uint32))


_INSTRUCTIONS: Mapping[str, Callable[..., int]] = {
    "mov.b32": lambda a: a,
    "shr.b32": lambda a, count: a >> count,
    "and.b32": lambda a, b: a & b,
    "lop3.b32": _looked_up,
    "prmt.b32": _permuted,
    "sub.f32": _difference,
    "fma.rn.bf16x2": _fused(torch.bfloat16),
    "fma.rn.f16x2": _fused(torch.float16),
}
