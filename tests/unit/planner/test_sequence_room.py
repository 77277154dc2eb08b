"""KV blocks of a job's sequences, against counting them pass by pass."""

import math
import random

import pytest

from tandem.planner.offline.sequence_room import SequenceRoom
from tandem.planner.question import Lengths
from tandem.spec.workload import RequestShape, Workload

SIZE = 16


def room_of(*shapes: tuple[int, int]) -> SequenceRoom:
    requests = tuple(RequestShape(prompt, generated) for prompt, generated in shapes)
    return SequenceRoom(Lengths.of(Workload("these", requests)), SIZE)


def held(prompt: int, generated: int, at: int, made: int = 0) -> int:
    """Blocks in a pass: the last token needs none."""
    return -(-(prompt + at) // SIZE) - made if at < generated else 0


@pytest.mark.parametrize("made_tokens", [0, 32])
def test_all_of_a_job_take_what_the_fullest_pass_takes(made_tokens: int) -> None:
    draw = random.Random(3)
    shapes = [(draw.randint(20, 60), draw.randint(1, 90)) for _ in range(50)]
    made = [min(made_tokens, prompt) // SIZE for prompt, _ in shapes]
    passes = [
        sum(held(*shape, at, gone) for shape, gone in zip(shapes, made, strict=True))
        for at in range(90)
    ]
    tokens = sum(generated for _, generated in shapes)
    of_all_ages = math.ceil(50 * sum(passes) / tokens - 1e-9)
    assert room_of(*shapes).blocks(50, made_tokens) == max(*passes, of_all_ages)


def test_equal_sequences_take_what_each_comes_to() -> None:
    room = room_of(*[(30, 20)] * 8)
    assert [room.blocks(n) for n in (0, 1, 3, 8)] == [0, 4, 12, 32]
    assert room.blocks(8, 16) == 24


def test_some_of_a_job_may_be_longer_than_all_in_the_mean() -> None:
    shapes = [(16, 3), (64, 3)] * 100
    room = room_of(*shapes)
    all_ = room.blocks(200)
    assert all_ == 100 * 2 + 100 * 5
    assert room.blocks(20) > all_ // 10
    assert room.blocks(20) < 20 * 5
    assert room.blocks(1) == room.longest_blocks == 5


def test_where_places_are_filled_again_sequences_are_of_all_ages() -> None:
    """One in ten is long: together they begin small, but long ones are what mostly runs."""
    room = room_of(*([(16, 2)] * 90 + [(16, 401)] * 10))
    tokens = 90 * 2 + 10 * 401
    area = 90 * (1 + 2) + 10 * sum(held(16, 401, at) for at in range(401))
    assert room.blocks(100) == -(-100 * area // tokens)


def test_some_of_those_that_run_together_take_no_more_than_all_without_the_others() -> None:
    draw = random.Random(7)
    room = room_of(*((draw.randint(460, 560), draw.randint(28, 36)) for _ in range(100)))
    most = room.blocks(100)
    assert room.blocks(98) > most  # which others may follow
    together = [room.blocks(n, together=True) for n in range(1, 101)]
    assert together == sorted(together)
    assert most - 2 * room.longest_blocks < together[97] < together[-1] == most
    assert together[9] == room.blocks(10)  # which ones they are is not known


@pytest.mark.parametrize("count", [35, 45, 49])
def test_of_those_that_run_together_any_some_have_room(count: int) -> None:
    draw = random.Random(count)
    shapes = [(draw.randint(20, 60), draw.randint(20, 60)) for _ in range(50)]
    room = room_of(*shapes)
    wanted, lacking = room.blocks(count, together=True), 0
    for _ in range(200):
        some = draw.sample(shapes, count)
        fullest = max(sum(held(*shape, at) for shape in some) for at in range(60))
        lacking += fullest > wanted
    assert wanted < room.blocks(count)
    assert lacking <= 10  # of 200: two standard deviations
