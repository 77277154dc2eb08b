"""How many KV blocks requests hold that run at once."""

import random
from dataclasses import replace
from itertools import pairwise
from statistics import mean, pstdev

import pytest

from tandem.memory.growth_reserve import growth_reserve
from tandem.planner.held_blocks import HeldBlocks, Wants, least_mean
from tandem.planner.question import Lengths
from tandem.spec.workload import LengthDistribution, Workload, drawn_workload

SIZE = 64


def lengths_of(prompt: tuple[int, int], generate: tuple[int, int], requests: int = 400) -> Lengths:
    prompts, outputs = (LengthDistribution("uniform", *each) for each in (prompt, generate))
    return Lengths.of(drawn_workload(prompts, outputs, requests))


def counted(lengths: Lengths) -> list[int]:
    """Blocks of each request while each of its tokens but the first is decoded."""
    return [
        -(-(shape.prompt_tokens + done) // SIZE)
        for shape in lengths.shapes
        for done in range(1, shape.generated_tokens)
    ]


@pytest.mark.parametrize("prompt", [(1, 1), (1, 2), (64, 64), (97, 97)])
@pytest.mark.parametrize(
    "generate", [(900, 1100), (1000, 1000), (64, 64), (65, 65), (2, 2), (10, 200)]
)
def test_no_request_holds_less_than_is_counted_at_least(
    prompt: tuple[int, int], generate: tuple[int, int]
) -> None:
    lengths = lengths_of(prompt, generate)
    least, found = least_mean(lengths, SIZE), mean(counted(lengths))
    assert least <= found
    if generate[0] >= 900:
        assert least > 0.998 * found


@pytest.mark.parametrize(
    ("prompt", "generate"),
    [((1, 1), (900, 1100)), ((460, 560), (58, 70)), ((20, 4000), (10, 1000)), ((512, 512), (2, 9))],
)
def test_what_one_holds_is_what_counting_gives(
    prompt: tuple[int, int], generate: tuple[int, int]
) -> None:
    lengths = lengths_of(prompt, generate)
    held, found = HeldBlocks.of(lengths, SIZE), counted(lengths)
    assert held.mean == pytest.approx(mean(found), abs=0.55, rel=0.01)
    # whole blocks of what varies by less than one vary more than its tokens do
    assert held.deviation == pytest.approx(pstdev(found), abs=0.3, rel=0.02)


def test_long_outputs_leave_room_for_nearly_twice_as_many_as_their_ends_would() -> None:
    held = HeldBlocks.of(lengths_of((1, 1), (900, 1100)), SIZE)
    rows = next(rows for rows in range(1000, 0, -1) if held.wanted(rows, 1600) <= 1600)
    assert held.last == 16
    assert 1.7 * 100 < rows < 1600 / held.mean


def test_the_reserve_and_the_next_prompt_are_counted() -> None:
    held = HeldBlocks.of(lengths_of((512, 512), (64, 64)), SIZE)
    # 28 at their ends, one sixteenth of the pool, and the prompt
    assert held.wanted(29, 320) == 28 * 9 + 20 + 8
    assert held.wanted(1, 320) == 9
    assert held.wanted(29, 320, followed=False) == 29 * 9
    # beside all 28 of them another one reads its prompt
    assert held.wanted(28, 320, reading=True) == 28 * 9 + 20 + 8


def test_those_that_never_outgrow_a_block_hold_it_whole_and_want_no_reserve() -> None:
    held = HeldBlocks.of(lengths_of((1, 1), (50, 50)), SIZE)
    assert (held.mean, held.deviation, held.last) == (1, 0, 1)
    assert held.wanted(29, 320) == 29
    # one token more than a block has: the last one needs no KV
    assert not HeldBlocks.of(lengths_of((1, 1), (64, 64)), SIZE).grows
    assert HeldBlocks.of(lengths_of((1, 1), (65, 65)), SIZE).grows


@pytest.mark.parametrize(
    ("prompt", "generate"),
    [(1000, 1), (100, 20), (100, 29), (100, 30), (64, 1), (64, 2), (128, 300), (960, 65)],
)
def test_requests_grow_if_they_begin_a_block_after_their_prompt_s(
    prompt: int, generate: int
) -> None:
    lengths = lengths_of((prompt, prompt), (generate, generate), 3)
    grows = any(found > -(-prompt // SIZE) for found in counted(lengths))
    for known in (lengths, replace(lengths, shapes=())):
        held = HeldBlocks.of(known, SIZE)
        assert held.grows == grows
        kept = held.wanted(50, 1600) - held.wanted(50, 15)  # of which a sixteenth is nothing
        assert bool(kept) == grows


def test_one_that_grows_among_others_keeps_the_reserve() -> None:
    one, others = (lengths_of((100, 100), (each, each), 9).shapes for each in (40, 20))
    assert HeldBlocks.of(Lengths.of(Workload("both", (*others, one[0]))), SIZE).grows


def test_more_requests_never_want_less_and_a_larger_pool_never_holds_fewer() -> None:
    for prompt, generate in (((1, 1), (50, 50)), ((400, 600), (60, 70)), ((9, 900), (400, 600))):
        held = HeldBlocks.of(lengths_of(prompt, generate), SIZE)
        for rows in range(1, 60):
            assert held.wanted(rows, 500) >= max(rows * held.mean, held.last)
            assert held.wanted(rows, 500) <= held.wanted(rows + 1, 500)
        for smaller, larger in pairwise(range(16, 700)):
            spare = (pool - held.wanted(20, pool) for pool in (smaller, larger))
            assert next(spare) <= next(spare)


def test_requests_that_run_longer_count_for_longer() -> None:
    """A mixture's running requests are longer in the mean than its requests."""
    short, long = (lengths_of((10, 10), (each, each), 100).shapes for each in (10, 2000))
    held = HeldBlocks.of(Lengths.of(Workload("both", (*short, *long))), SIZE)
    assert held.mean > 15.5
    assert held.last >= held.mean
    alone = HeldBlocks.of(Lengths.of(Workload("long", long)), SIZE)
    assert held.mean == pytest.approx(alone.mean, rel=0.02)


def test_means_alone_do_where_requests_are_not_known() -> None:
    lengths = lengths_of((100, 300), (100, 300))
    assert HeldBlocks.of(replace(lengths, shapes=()), SIZE) == HeldBlocks.of(lengths, SIZE)


def test_what_rows_want_is_the_plain_formula() -> None:
    """Which is written out for speed: larger and smaller of some sums."""
    rng = random.Random(0)
    for _ in range(2000):
        rows, every, others, steady, prompt, least, growing = (rng.randint(0, 40) for _ in range(7))
        pool, followed, reading = rng.randint(0, 900), rng.random() < 0.5, rng.random() < 0.5
        reserve = growth_reserve(growing, pool)
        expected, wanted = every, max(least, steady + reserve)
        if rows > 1:
            next_one = (every if reading else others) + prompt + reserve
            expected = min(wanted, max(every, next_one) if followed else every)
        wants = Wants(rows, every, others, steady, prompt, least, growing)
        assert wants.of(pool, followed=followed, reading=reading) == expected
