from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.plan.decode_sweep import (
    MAX_BUCKET_ROWS,
    MAX_BUCKETS,
    decode_template,
    row_buckets,
)
from tandem.plan.program import Queue


@given(st.integers(1, 5000))
def test_buckets_are_few_and_close_and_reach_all_rows(max_rows: int) -> None:
    buckets = row_buckets(max_rows)
    assert len(buckets) <= MAX_BUCKETS
    assert buckets[0] == 1
    assert buckets[-1] == min(max_rows, MAX_BUCKET_ROWS)
    assert all(below < above <= 2 * below for below, above in pairwise(buckets))


@pytest.mark.parametrize(
    ("max_rows", "buckets"),
    [
        (1, (1,)),
        (5, (1, 2, 3, 4, 5)),
        (64, (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)),
        (256, (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)),
    ],
)
def test_large_steps_are_padded_least(max_rows: int, buckets: tuple[int, ...]) -> None:
    assert row_buckets(max_rows) == buckets


def test_a_sweep_launched_as_one_is_one_operation_of_the_accelerator() -> None:
    assert decode_template().counts == ((Queue.ACCEL, 1),)
