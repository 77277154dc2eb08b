"""How products with quantized weights are cut for matrix units."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.kernels.product_tiles import MOST_SPLIT_TILES, cut_groups
from tandem.spec.weight_format import BITS, GROUPS, WeightFormat

INT4, INT8, FP8 = WeightFormat(4, 128), WeightFormat(8, 64), WeightFormat(8, 128, floats=True)
FORMATS = (
    *(WeightFormat(bits, group) for bits in BITS for group in GROUPS),
    *(WeightFormat(8, group, floats=True) for group in GROUPS),
)


@given(
    format=st.sampled_from(FORMATS),
    outputs=st.integers(1, 1 << 18),
    groups=st.integers(1, 1 << 9),
    rows=st.integers(1, 128),
    processors=st.integers(1, 10_000),
)
def test_splits_have_all_groups_in_whole_steps(
    format: WeightFormat, outputs: int, groups: int, rows: int, processors: int
) -> None:
    cut = cut_groups(format, outputs, groups * format.group, rows, processors)
    assert groups % cut.step_groups == 0
    assert cut.split_groups % cut.step_groups == 0
    assert (cut.splits - 1) * cut.split_groups < groups <= cut.splits * cut.split_groups
    assert 1 <= cut.splits <= 16
    tiles = -(-outputs // cut.tile.outputs) * -(-rows // cut.tile.rows)
    assert cut.splits == 1 or tiles <= MOST_SPLIT_TILES


@pytest.mark.parametrize(
    ("format", "outputs", "inputs", "rows", "expected"),
    [
        # rows and outputs of a tile, splits: the fastest on an H100 (ADR 0101)
        (INT4, 14336, 4096, 4, (8, 64, 4)),
        (INT4, 4096, 14336, 4, (8, 64, 10)),
        (INT4, 6144, 4096, 16, (16, 64, 6)),
        (INT4, 14336, 4096, 32, (32, 64, 1)),
        (INT4, 4096, 14336, 64, (64, 128, 6)),
        (INT4, 6144, 4096, 128, (64, 128, 2)),
        (INT4, 14336, 4096, 128, (128, 128, 1)),
        (INT8, 14336, 4096, 4, (8, 16, 1)),
        (INT8, 4096, 14336, 4, (8, 32, 10)),
        (INT8, 4096, 14336, 32, (32, 32, 8)),
        (INT8, 6144, 4096, 64, (64, 64, 4)),
        (INT8, 4096, 14336, 128, (128, 64, 4)),
        (FP8, 14336, 4096, 1, (8, 32, 1)),
        (FP8, 4096, 14336, 16, (16, 16, 3)),
        (FP8, 6144, 4096, 32, (32, 32, 3)),
        (FP8, 14336, 4096, 64, (64, 64, 1)),
        (FP8, 6144, 4096, 128, (64, 64, 2)),
    ],
)
def test_what_was_the_fastest_is_chosen(
    format: WeightFormat, outputs: int, inputs: int, rows: int, expected: tuple[int, int, int]
) -> None:
    cut = cut_groups(format, outputs, inputs, rows, 132)
    assert (cut.tile.rows, cut.tile.outputs, cut.splits) == expected
