"""Lanes of decodes that follow from each other are those that would have been built anew."""

import random
from array import array

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tandem.plan.binding import LaneBinding
from tandem.scheduler.lane_builder import LaneBuilder
from tandem.scheduler.rows import UNLIMITED, RowTable
from tandem.scheduler.steady_lane import BuiltLane
from tandem.spec.tier import TIERS, Tier

MAX_ROWS, MAX_BLOCKS = 6, 40


class Decoding:
    """A row table of which some rows decode, without a scheduler.

    Blocks get ids never used before, so that no two rows' can be mistaken for each other.
    """

    def __init__(self, seed: int, size: int) -> None:
        self.random, self.size = random.Random(seed), size
        self.rows = RowTable(MAX_ROWS, MAX_BLOCKS)
        self.lanes = self.new_builder()
        self.next_block = 1

    def new_builder(self) -> LaneBuilder:
        return LaneBuilder(self.rows, self.size, lambda row: array("i", range(500)))

    def admit(self) -> None:
        row, r = self.rows.take(), self.rows
        r.limit[row] = 500
        r.submitted[row] = self.random.randint(0, 3 * self.size)
        r.known[row] = r.submitted[row] + 1
        r.device_limit[row] = self.random.choice((0, 1, 2, 5, UNLIMITED))
        self.grow(row, self.random.choice((0, 0, 0, 2 * self.size)))

    def grow(self, row: int, ahead: int = 0) -> None:
        r = self.rows
        while r.num_blocks[row] * self.size <= r.submitted[row] + ahead:
            on_device = r.num_blocks[row] < r.device_limit[row]
            r.extend_blocks(row, Tier.DEVICE if on_device else Tier.HOST, [self.next_block])
            self.next_block += 1

    def leave(self, row: int) -> None:
        self.rows.drop_blocks(row)
        self.rows.free(row)

    def move(self, row: int) -> None:
        """To the device, as after a swap."""
        count = int(self.rows.num_host_blocks[row])
        blocks = np.arange(self.next_block, self.next_block + count, dtype=np.int32)
        self.next_block += count
        self.rows.gather_blocks(row, Tier.DEVICE, blocks)

    def change(self) -> None:
        """Now and then one thing happens to some row."""
        owned = self.rows.owned().tolist()
        if len(owned) < MAX_ROWS and self.random.random() < 0.1:
            self.admit()
        if len(owned) > 1 and self.random.random() < 0.05:
            self.leave(self.random.choice(owned))
        elif self.random.random() < 0.05:
            self.move(self.random.choice(owned))

    def step(self) -> BuiltLane:
        """All rows compute one token and sample the next; sometimes one of them pauses."""
        r, decode = self.rows, self.rows.owned()
        if len(decode) > 1 and self.random.random() < 0.1:
            decode = np.delete(decode, self.random.randrange(len(decode)))
        for row in decode.tolist():
            self.grow(row)
        built = self.lanes.main(decode, [])
        assert same(built, self.new_builder().main(decode, []), self.size)
        r.submitted[decode] += 1
        r.pending[decode] += 1
        r.on_device[decode] = True
        return built


def seen(binding: LaneBinding, size: int) -> dict[Tier, list[list[tuple[int, int]]]]:
    """Of each tier and row, the blocks that its token sees: (logical number, id)."""
    found: dict[Tier, list[list[tuple[int, int]]]] = {}
    for tier, part in binding.attention.items():
        found[tier] = []
        for i, position in enumerate(part.positions.tolist()):
            ids = part.block_table[i].tolist()
            numbers = range(len(ids)) if part.block_index is None else part.block_index[i].tolist()
            pairs = zip(numbers, ids, strict=True)
            found[tier].append([pair for pair in pairs if pair[0] * size <= position])
    return found


def same(built: BuiltLane, other: BuiltLane, size: int) -> bool:
    a, b = built.binding, other.binding
    for name in ("rows", "token_ids", "token_rows", "positions", "logits_index"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), name)
    assert a.attention.keys() == b.attention.keys()
    assert a.append.keys() == b.append.keys()
    for tier in TIERS:
        if tier in a.append:
            np.testing.assert_equal(a.append[tier].token_index, b.append[tier].token_index)
            np.testing.assert_array_equal(a.append[tier].slots, b.append[tier].slots)
        if tier in a.attention:
            mine, theirs = a.attention[tier], b.attention[tier]
            np.testing.assert_equal(mine.token_index, theirs.token_index)
            np.testing.assert_array_equal(mine.query_start, theirs.query_start)
            np.testing.assert_array_equal(mine.positions, theirs.positions)
            assert mine.num_decode == theirs.num_decode
    np.testing.assert_array_equal(built.after, other.after)
    np.testing.assert_array_equal(built.rows.rows, other.rows.rows)
    np.testing.assert_array_equal(built.sampled.rows, other.sampled.rows)
    return seen(a, size) == seen(b, size)


@given(st.integers(0, 10_000), st.sampled_from((1, 2, 4, 16)))
def test_a_lane_that_follows_is_the_one_built_anew(seed: int, size: int) -> None:
    decoding = Decoding(seed, size)
    for _ in range(decoding.random.randint(1, 4)):
        decoding.admit()
    steps: list[tuple[LaneBinding, dict[Tier, list[list[tuple[int, int]]]]]] = []
    for _ in range(20):
        binding = decoding.step().binding
        steps.append((binding, seen(binding, size)))
        decoding.change()
    # tables are shared, so later steps must have left alone what earlier ones see
    for binding, before in steps:
        assert seen(binding, size) == before


def test_most_steps_of_steady_decode_share_their_table() -> None:
    decoding = Decoding(0, 16)
    for _ in range(MAX_ROWS):
        decoding.admit()
    decode = decoding.rows.owned()
    tables: list[object] = []
    for _ in range(48):
        for row in decode.tolist():
            decoding.grow(row)
        built = decoding.lanes.main(decode, [])
        tables.append(next(iter(built.binding.attention.values())).block_table)
        decoding.rows.submitted[decode] += 1
        decoding.rows.pending[decode] += 1
        decoding.rows.on_device[decode] = True
    assert len({id(table) for table in tables}) < 10
