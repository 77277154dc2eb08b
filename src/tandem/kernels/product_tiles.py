"""How products of rows of 16 bits with quantized weights are cut for matrix units.

Measured on an H100 with maps of 14336 x 4096, 4096 x 14336 and 6144 x 4096 (ADR 0101).
"""

from dataclasses import dataclass
from functools import cache
from math import gcd

from tandem.spec.weight_format import WeightFormat

MOST_SPLIT_TILES = 1 << 13
"""Of results, each of which has a counter if its inputs are divided."""
_MOST_SPLITS = 16
_MOST_STEP_GROUPS = 4  # written out one after another
_MOST_ROWS = 128  # of a tile
# From so many outputs for each processor, or elements, a map counts as wide, or as large.
_WIDE_OUTPUTS, _LARGE_ELEMENTS = 64, 1 << 18


@dataclass(frozen=True, slots=True)
class ProductTile:
    """What a kernel is compiled with.

    Attributes:
        rows, outputs: of a program's results.
        step_bytes: of an output's codes that are multiplied before the loop goes on.
        stages: of codes and rows on their way into shared memory.
        warps: of a program.
        programs: for each processor, which the inputs are divided for.
    """

    rows: int
    outputs: int
    step_bytes: int
    stages: int
    warps: int
    programs: float


@dataclass(frozen=True, slots=True)
class ProductCut:
    """A product's tile, how many groups it steps by, and how its inputs are divided."""

    tile: ProductTile
    step_groups: int
    splits: int
    split_groups: int


# By bits: wide maps have their outputs for parallel work, others are divided along their inputs.
_NARROW = {
    4: (
        ProductTile(8, 64, 256, 2, 4, 6),
        ProductTile(16, 64, 128, 3, 4, 5),
        ProductTile(32, 64, 128, 3, 4, 2),
        ProductTile(64, 128, 64, 3, 4, 1.5),
        ProductTile(128, 128, 64, 3, 8, 1),
    ),
    8: (
        ProductTile(8, 32, 256, 2, 2, 10),
        ProductTile(16, 32, 256, 2, 2, 10),
        ProductTile(32, 32, 128, 3, 2, 8),
        ProductTile(64, 64, 128, 2, 4, 3),
        ProductTile(128, 64, 64, 3, 4, 2),
    ),
}
_WIDE = {
    4: _NARROW[4],
    8: (
        ProductTile(8, 16, 256, 3, 1, 5),
        ProductTile(16, 16, 256, 3, 1, 5),
        _NARROW[8][2],
        ProductTile(64, 64, 64, 4, 4, 3),
        _NARROW[8][4],
    ),
}
_FLOATS = (
    ProductTile(8, 32, 256, 3, 2, 5),
    ProductTile(16, 16, 256, 3, 1, 5),
    ProductTile(32, 32, 256, 2, 2, 4),
    ProductTile(64, 64, 128, 2, 4, 3),
    ProductTile(128, 64, 64, 3, 4, 2),
)
_WIDE_FLOATS = (*_FLOATS[:3], ProductTile(64, 64, 64, 4, 4, 2), _FLOATS[4])


@cache
def cut_groups(
    format: WeightFormat, outputs: int, inputs: int, rows: int, processors: int
) -> ProductCut:
    """The fastest tile, with inputs divided until every processor has work."""
    tile = _tile(format, outputs, inputs, rows, processors)
    groups = inputs // format.group
    most = tile.step_bytes // (format.group * format.bits // 8)
    # the loop has no end of its own for some of a step's groups
    step = gcd(groups, max(1, min(most, _MOST_STEP_GROUPS)))
    tiles = -(-outputs // tile.outputs) * -(-rows // tile.rows)
    # a split with less than two steps costs more to add up than it spreads
    wanted = min(round(tile.programs * processors / tiles), groups // (2 * step), _MOST_SPLITS)
    if tiles > MOST_SPLIT_TILES:
        wanted = 1
    split_groups = -(-groups // (max(1, wanted) * step)) * step
    return ProductCut(tile, step, -(-groups // split_groups), split_groups)


def _tile(
    format: WeightFormat, outputs: int, inputs: int, rows: int, processors: int
) -> ProductTile:
    is_wide = outputs >= _WIDE_OUTPUTS * processors
    if format.floats:
        tiles = _WIDE_FLOATS if is_wide else _FLOATS
    else:
        tiles = (_WIDE if is_wide else _NARROW)[format.bits]
    # of small maps, tiles of many rows would leave processors idle, or be divided too finely
    is_large = outputs * inputs >= _LARGE_ELEMENTS * processors
    most = _MOST_ROWS if is_large else _MOST_ROWS // 2
    return next((tile for tile in tiles if min(rows, most) <= tile.rows), tiles[-1])
