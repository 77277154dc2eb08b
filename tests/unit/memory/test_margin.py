"""What stays free of an accelerator."""

import pytest

from tandem.memory.margin import margin_bytes
from tandem.spec.units import GIB, MIB


@pytest.mark.parametrize(
    ("free", "margin"),
    [
        (0, 0),
        (8 * MIB, 8 * MIB // 20),
        (12 * GIB, 12 * GIB // 20),
        (20 * GIB, GIB),
        (80 * GIB, GIB),
    ],
)
def test_a_twentieth_but_no_more_than_a_gibibyte(free: int, margin: int) -> None:
    assert margin_bytes(free) == margin
