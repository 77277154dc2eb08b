"""How the Triton kernels' work is cut: without Triton."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem.kernels.triton_plan import (
    MAX_SPLITS,
    MIN_DOT,
    HeadShape,
    TritonBatch,
    decode_shape,
    plan_rows,
    plan_tiles,
    prefill_shape,
    shape_over_bytes,
)
from tandem.kernels.triton_support import TritonDevice
from tandem.plan.binding import TierAttention

CPU = torch.device("cpu")


def lane(rows: list[tuple[int, int]]) -> TierAttention:
    """Rows of (context, queries), those of one query first."""
    rows = sorted(rows, key=lambda row: row[1] != 1)
    blocks = [-(-context // 16) for context, _ in rows]
    return TierAttention(
        token_index=None,
        query_start=np.cumsum([0, *(queries for _, queries in rows)]).astype(np.int32),
        num_decode=sum(queries == 1 for _, queries in rows),
        positions=np.array([p for c, q in rows for p in range(c - q, c)], np.int32),
        block_table=np.zeros((len(rows), max(blocks)), np.int32),
        block_index=None,
    )


def plan(
    rows: list[tuple[int, int]], heads: HeadShape, unit: TritonDevice, window: int = 0
) -> TritonBatch:
    return plan_tiles(lane(rows), 16, heads, unit, CPU, window)


@pytest.mark.parametrize("window", [0, 100])
def test_rows_planned_on_the_device_see_what_the_host_would_plan(window: int) -> None:
    heads, unit = HeadShape(2, 4, 64, 2), TritonDevice(132, has_dot=True)
    contexts = [1, 16, 500, 3000]
    expected = plan([(context, 1) for context in contexts], heads, unit, window)
    position = torch.tensor(contexts) - 1
    made = plan_rows(
        position, torch.zeros(4, 4000 // 16, dtype=torch.int32), 16, heads, unit, window
    )
    assert torch.equal(made.first, expected.first)
    assert torch.equal(made.end, expected.end)
    (tiles,), (given,) = made.tiles, expected.tiles
    assert (tiles.shape, tiles.tokens) == (given.shape, given.tokens)
    for name in ("row", "token", "count"):
        assert torch.equal(getattr(tiles, name), getattr(given, name))


@pytest.mark.parametrize("rows", [[(40, 1)], [(7, 1)] * 3, [(7, 1), (33, 5), (9, 9)], [(5, 3)]])
def test_every_array_is_aligned_so_that_steps_need_no_kernels_of_their_own(
    rows: list[tuple[int, int]],
) -> None:
    made = plan(rows, HeadShape(2, 4, 64, 2), TritonDevice(132, has_dot=True))
    arrays = [made.first, made.end, made.table]
    arrays += [part for tiles in made.tiles for part in (tiles.row, tiles.token, tiles.count)]
    assert len({array.untyped_storage().data_ptr() for array in arrays}) == 1, "one copy"
    # of what the allocator gives, which is aligned
    assert [array.storage_offset() * array.element_size() % 16 for array in arrays] == [0] * len(
        arrays
    )
    assert made.first.tolist() == [0] * len(made.first)
    assert made.end.tolist() == [p + 1 for c, q in rows for p in range(c - q, c)]


def test_splits_of_rows_planned_on_the_device_follow_the_table_and_not_the_rows() -> None:
    heads, unit = HeadShape(2, 4, 64, 2), TritonDevice(132, has_dot=True)
    table = torch.zeros(3, 256, dtype=torch.int32)
    splits = {
        plan_rows(torch.tensor(positions), table, 16, heads, unit).tiles[0].splits
        for positions in ([0, 0, 0], [4000, 7, 4095])
    }
    assert len(splits) == 1
    assert splits.pop() > 1


ROWS = st.tuples(st.integers(1, 3000), st.integers(1, 200)).map(lambda row: (max(row), min(row)))
HEADS = st.builds(
    HeadShape,
    st.integers(1, 8),
    st.integers(1, 16),
    st.sampled_from([8, 64, 80, 256]),
    st.sampled_from([2, 4]),
    st.sampled_from([0, 8, 4]),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(ROWS, min_size=1, max_size=6),
    HEADS,
    st.integers(1, 200),
    st.sampled_from([0, 9, 500]),
)
def test_every_token_and_every_key_has_one_program(
    rows: list[tuple[int, int]], heads: HeadShape, processors: int, window: int
) -> None:
    batch = plan(rows, heads, TritonDevice(processors, has_dot=True), window)
    attention = lane(rows)
    row_of = np.repeat(np.arange(len(rows)), np.diff(attention.query_start))
    covered = np.zeros(batch.num_tokens, np.int64)
    for tiles in batch.tiles:
        assert 1 <= tiles.splits <= MAX_SPLITS
        for row, token, count in zip(tiles.row, tiles.token, tiles.count, strict=True):
            own = slice(int(token), int(token + count))
            assert 1 <= int(count) <= tiles.shape.tokens
            assert tiles.tokens.start <= own.start
            assert own.stop <= tiles.tokens.stop
            assert (row_of[own] == int(row)).all()
            covered[own] += 1
    assert (covered == 1).all()


@settings(max_examples=60, deadline=None)
@given(HEADS, st.booleans())
def test_tiles_hold_their_rows(heads: HeadShape, has_dot: bool) -> None:
    shapes = [decode_shape(heads, TritonDevice(1, has_dot))]
    if has_dot:
        shapes.append(prefill_shape(heads))
    for shape in shapes:
        assert shape.rows >= shape.tokens * heads.group
        assert shape.pad_dim >= heads.row_elements
        for count in (shape.rows, shape.keys, shape.pad_dim):
            assert count & (count - 1) == 0
            assert count >= (MIN_DOT if has_dot else 1)


def test_one_long_request_is_divided_among_all_multiprocessors() -> None:
    heads = HeadShape(kv_heads=8, group=4, row_elements=128, element_bytes=2)
    (tiles,) = plan([(100_000, 1)], heads, TritonDevice(108, has_dot=True)).tiles
    assert 8 * tiles.splits >= 2 * 108
    (many,) = plan([(4096, 1)] * 64, heads, TritonDevice(108, has_dot=True)).tiles
    assert many.splits == 1


@pytest.mark.parametrize(("rows", "splits"), [(1, 64), (16, 4), (20, 3), (64, 1), (80, 1)])
def test_as_many_programs_as_run_at_once_and_none_that_wait(rows: int, splits: int) -> None:
    heads, unit = (
        HeadShape(kv_heads=8, group=4, row_elements=128, element_bytes=2),
        TritonDevice(132, has_dot=True),
    )
    (tiles,) = plan([(32768, 1)] * rows, heads, unit).tiles
    table = torch.zeros(rows, 32768 // 16, dtype=torch.int32)
    (static,) = plan_rows(torch.zeros(rows, dtype=torch.int64), table, 16, heads, unit).tiles
    assert tiles.splits == static.splits == splits


def test_tiles_of_prompts_that_see_most_come_first() -> None:
    heads = HeadShape(kv_heads=2, group=4, row_elements=64, element_bytes=2)
    batch = plan([(100, 100), (500, 40), (9, 1)], heads, TritonDevice(132, has_dot=True))
    (_, tiles) = batch.tiles
    ends = batch.end[(tiles.token + tiles.count - 1).long()].tolist()
    assert len(ends) > 2
    assert ends == sorted(ends, reverse=True)


def test_pages_of_bytes_are_multiplied_as_float16_on_matrix_units() -> None:
    unit = TritonDevice(132, has_dot=True)
    for element_bytes in (2, 4):
        heads = HeadShape(8, 4, 128, element_bytes)
        usual = decode_shape(heads, unit)
        shape = shape_over_bytes(usual, heads, unit)
        assert shape.halves == (element_bytes == 2)
        assert (shape == usual) == (element_bytes == 4)
    heads = HeadShape(8, 4, 128, 2)
    without = TritonDevice(132, has_dot=False)
    usual = decode_shape(heads, without)
    assert shape_over_bytes(usual, heads, without) == usual


@pytest.mark.parametrize("context", [1, 300])
def test_short_requests_are_not_divided(context: int) -> None:
    heads = HeadShape(kv_heads=1, group=1, row_elements=64, element_bytes=4)
    (tiles,) = plan([(context, 1)], heads, TritonDevice(108, has_dot=True)).tiles
    assert tiles.splits == 1
