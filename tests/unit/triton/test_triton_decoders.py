"""The assembly by which codes become numbers, of all codes, without a GPU."""

import math
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from tests.unit.triton.ptx import halves, run, single

from tandem.kernels import triton_decoders

HALF, BRAIN = torch.float16, torch.bfloat16
WORDS = [int.from_bytes(bytes(range(first, first + 4)), "little") for first in range(0, 256, 4)]


def text_of(name: str) -> str:
    constant: Any = getattr(triton_decoders, name)
    return constant.value


@pytest.mark.parametrize(
    ("name", "zeros", "dtype"), [("_HALVES_BF16", 0xC300, BRAIN), ("_HALVES_FP16", 0xE400, HALF)]
)
def test_halves_less_their_zero(name: str, zeros: int, dtype: torch.dtype) -> None:
    low, high = list[float](), list[float]()
    for zero in range(16):
        negative = (zeros | zero) * 0x10001
        for word in WORDS:
            found = run(text_of(name), {"$4": word, "$5": negative, "$6": negative})
            low += halves(found["$0"], dtype) + halves(found["$1"], dtype)
            high += halves(found["$2"], dtype) + halves(found["$3"], dtype)
    assert low == [(code & 15) - zero for zero in range(16) for code in range(256)]
    assert high == [(code >> 4) - zero for zero in range(16) for code in range(256)]


@pytest.mark.parametrize("zero", [0, 1, 127, 128, 255])
def test_bytes_less_their_zero(zero: int) -> None:
    expected, wide = [code - zero for code in range(256)], 0x4B000000 | zero  # 2^23 + zero
    brain, half = list[float](), list[float]()
    for word in WORDS:
        given = {"$2": word} | dict.fromkeys(("$3", "$4", "$5", "$6"), wide)
        found = run(text_of("_BYTES_BF16"), given)
        brain += halves(found["$0"], BRAIN) + halves(found["$1"], BRAIN)
        given = {"$2": word} | dict.fromkeys(("$3", "$4"), (0xE400 | zero) * 0x10001)
        found = run(text_of("_BYTES_FP16"), given)
        half += halves(found["$0"], HALF) + halves(found["$1"], HALF)
    assert brain == expected
    assert half == expected


@pytest.mark.parametrize(("name", "dtype"), [("_FLOATS_BF16", BRAIN), ("_FLOATS_FP16", HALF)])
def test_floats_keep_their_signs(name: str, dtype: torch.dtype) -> None:
    found = list[float]()
    for word in WORDS:
        made = run(text_of(name), {"$2": word})
        found += halves(made["$0"], dtype) + halves(made["$1"], dtype)
    expected = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().tolist()
    expected[0x7F], expected[0xFF] = 480.0, -480.0  # NaN, which no weight is
    assert found == expected
    assert [math.copysign(1, a) for a in found] == [math.copysign(1, b) for b in expected]


def test_wide_numbers() -> None:
    for word in WORDS:
        codes = word.to_bytes(4, "little")
        found = run(text_of("_WIDE_HALVES"), {"$8": word})
        numbers = [single(found[f"${place}"]) - 128 for place in range(8)]
        assert numbers == [code & 15 for code in codes] + [code >> 4 for code in codes]
        found = run(text_of("_WIDE_BYTES"), {"$4": word})
        assert [single(found[f"${place}"]) - 32768 for place in range(4)] == list(codes)
