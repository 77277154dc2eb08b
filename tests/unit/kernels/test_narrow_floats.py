"""Floats of one byte: what each code means, and that numbers become the nearest of them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tandem.kernels.narrow_floats import LARGEST, decode, encode

CODES = torch.arange(256).to(torch.uint8)


def meaning(code: int) -> float:
    """Of a code that is not NaN, by the format's definition."""
    sign = -1.0 if code & 0x80 else 1.0
    exponent, fraction = code >> 3 & 15, code & 7
    if exponent == 0:
        return sign * fraction / 8 * 2.0**-6
    return sign * (1 + fraction / 8) * 2.0 ** (exponent - 7)


NUMBERS = {code: meaning(code) for code in range(256) if code & 0x7F != 0x7F}


def test_codes_mean_what_the_format_says() -> None:
    held = decode(CODES)
    assert held.dtype is torch.float32
    assert {c: float(held[c]) for c in NUMBERS} == NUMBERS
    assert held[[0x7F, 0xFF]].isnan().all()
    assert max(NUMBERS.values()) == LARGEST


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_numbers_that_are_held_exactly_come_back(dtype: torch.dtype) -> None:
    codes = torch.tensor(sorted(NUMBERS), dtype=torch.uint8)
    assert torch.equal(encode(decode(codes).to(dtype)), codes)


@given(st.floats(-LARGEST, LARGEST, width=32))
def test_the_nearest_number_is_taken_and_of_two_the_even_one(value: float) -> None:
    code = int(encode(torch.tensor(value)))
    away = {abs(value - number) for number in NUMBERS.values()}
    assert abs(value - NUMBERS[code]) == min(away)
    tied = [c for c, n in NUMBERS.items() if abs(value - n) == min(away) and (c ^ code) < 0x80]
    assert len(tied) == 1 or code % 2 == 0


def test_numbers_beyond_the_largest_are_the_largest_and_infinities_nan() -> None:
    values = torch.tensor([448.1, 500.0, 1e30, -1e30, torch.inf, -torch.inf, torch.nan])
    held = decode(encode(values))
    assert held[:4].tolist() == [448.0, 448.0, 448.0, -448.0]
    assert held[4:].isnan().all()
