"""How long requests wait that come one by one, where sweeps are launched ahead."""

from heapq import heappop, heappush
from random import Random

import pytest

from tandem.planner.overflow import overflow_share
from tandem.planner.prompt_queue import PromptQueue
from tandem.planner.queue_places import Home, SweepWithPromptsS

MANY = 1_000_000


def mean_s(sweep_s: SweepWithPromptsS, every_s: float, decoding_s: float, room: int = 100) -> float:
    """Of prompts of 10 tokens, which come so far apart in the mean, and have a place each."""
    queue, draw, now_s = PromptQueue((Home(MANY, MANY**3, sweep_s, 1.0),), room), Random(1), 0.0
    for _ in range(4000):
        now_s += draw.expovariate(1 / every_s)
        queue.arrive(now_s, 10, decoding_s)
    queue.finish()
    assert len(queue.ttfts_s) == 4000
    return sum(queue.ttfts_s) / 4000


def test_who_comes_alone_waits_for_nobody() -> None:
    assert mean_s(lambda tokens: 1 + tokens / 10, 1e4, 3.0) == pytest.approx(2, rel=0.01)


def test_who_comes_beside_others_waits_for_half_a_sweep_one_and_its_own() -> None:
    # prompts add nothing here, and there is always somebody
    assert mean_s(lambda _: 1.0, 5.0, 1e9) == pytest.approx(2.5, rel=0.02)


def test_prompts_that_come_in_one_sweep_are_read_together() -> None:
    """Gated service: a sweep takes 1 + N / 5, for the N that come in another: with m its mean, and
    v its variance, m = 1 + l m / 5 and v = l m / 25 + (l / 5)^2 v.
    """
    rate, each_s = 2.0, 0.2
    mean = 1 / (1 - rate * each_s)
    variance = rate * mean * each_s**2 / (1 - (rate * each_s) ** 2)
    seen = (mean**2 + variance) / mean  # the sweep in which one comes, in the mean
    expected = seen / 2 + mean + 1 + each_s * (1 + rate * seen)
    found = mean_s(lambda tokens: 1 + each_s * tokens / 10, 1 / rate, 1e9)
    assert found == pytest.approx(expected, rel=0.03)


def test_a_prompt_that_no_sweep_has_room_for_takes_several() -> None:
    queue = PromptQueue((Home(MANY, MANY**3, lambda tokens: 1 + tokens / 10, 1.0),), 10)
    queue.arrive(5.0, 25, 0)
    queue.arrive(5.0, 5, 0)
    queue.finish()
    # two full ones, and one that both share
    assert queue.ttfts_s == pytest.approx([6.0, 6.0])


def test_a_long_prompt_is_read_in_one_go_as_if_sweep_by_sweep() -> None:
    def first_s(parts: int) -> list[float]:
        """Of a long prompt, or of as many tokens in parts that fill a sweep each."""
        queue = PromptQueue((Home(1000, MANY, sweep_s, 1.0),), 64)
        queue.arrive(1.0, 10, 3)
        for _ in range(parts):
            queue.arrive(2.5, 64_000 / parts, 0)
        queue.arrive(400.25, 30, 7)
        queue.arrive(1500.0, 7, 1)
        queue.finish()
        return queue.ttfts_s

    calls = list[float]()

    def sweep_s(tokens: float) -> float:
        calls.append(tokens)
        return 1 + tokens / 64

    whole = first_s(1)
    assert len(calls) < 40
    parted = first_s(1000)
    assert len(calls) > 1000
    assert whole == pytest.approx([parted[0], *parted[-3:]])


def test_fractions_of_prompts_never_add_up_to_more_than_there_is_room_for() -> None:
    read = list[float]()

    def sweep_s(tokens: float) -> float:
        read.append(tokens)
        return 1.0

    assert 3 * 22.3 + (22.3 + (100 - 22.3 - 22.3 - 22.3 - 22.3)) > 100
    queue = PromptQueue((Home(3, MANY, sweep_s, 1.0), Home(MANY, MANY, sweep_s, 1.0)), 100)
    for _ in range(5):
        queue.arrive(0.0, 22.3, 5)
    queue.finish()
    assert max(read) == 100


def test_those_who_find_no_place_are_counted() -> None:
    queue = PromptQueue((Home(2, MANY, lambda _: 1.0, 2.0),), 100)
    for _ in range(5):
        queue.arrive(0.0, 10, 5)
    queue.finish()
    assert queue.waited == 3


@pytest.mark.parametrize("room", [10, 40])
def test_less_room_never_waits_less(room: int) -> None:
    slow = mean_s(lambda tokens: 1 + tokens / 50, 0.9, 1e9, room)
    fast = mean_s(lambda tokens: 1 + tokens / 50, 0.9, 1e9, 100)
    assert slow > 0.99 * fast


def test_who_finds_all_places_taken_waits_until_one_has_ended() -> None:
    queue = PromptQueue((Home(1, MANY, lambda _: 1.0, 2.0),), 100)
    queue.arrive(0.0, 10, 5)  # its first token after 1 s, its last after 11
    queue.arrive(0.0, 10, 5)
    queue.finish()
    # the sweep in which its end is known, and the one that has been submitted by then
    assert queue.ttfts_s[0] == pytest.approx(1.0)
    assert 12.0 <= queue.ttfts_s[1] <= 14.0


@pytest.mark.parametrize("places", [1, 3, 8])
def test_whoever_waits_for_a_place_does_so_as_in_a_queue_with_several_servers(places: int) -> None:
    """Where sweeps take next to no time, each goes to the place that is free first."""
    queue, draw, now_s = (
        PromptQueue((Home(places, MANY, lambda _: 1e-3, 1.0),), 100),
        Random(2),
        0.0,
    )
    free_s, waits_s = [0.0] * places, list[float]()
    for _ in range(4000):
        now_s += draw.expovariate(0.7 * places / 100)
        decoding_s = draw.expovariate(1 / 100)
        queue.arrive(now_s, 1, decoding_s)
        begins_s = max(now_s, heappop(free_s))
        waits_s.append(begins_s - now_s)
        heappush(free_s, begins_s + decoding_s)
    queue.finish()
    assert sum(waits_s) / 4000 > 1
    assert sum(queue.ttfts_s) == pytest.approx(sum(waits_s), rel=0.01)


def test_the_second_home_takes_whom_the_first_has_no_place_for_and_reads_as_it_does() -> None:
    here, there = (
        Home(1, MANY, lambda tokens: 1 + tokens, 100.0),
        Home(1, MANY, lambda tokens: 9 * tokens, 1.0),
    )
    queue = PromptQueue((here, there), 100)
    queue.arrive(0.0, 1, 1)
    queue.arrive(10.0, 2, 1)
    queue.finish()
    # the sweep that is under way, and the one that has been submitted, take a second each
    assert queue.ttfts_s[0] == 2.0
    assert 18.0 <= queue.ttfts_s[1] <= 20.0


def test_a_sweep_for_both_homes_takes_by_the_tokens_of_each() -> None:
    here, there = (
        Home(1, MANY, lambda tokens: 1 + tokens, 1.0),
        Home(1, MANY, lambda tokens: 5 * tokens, 1.0),
    )
    queue = PromptQueue((here, there), 100)
    queue.arrive(0.0, 1, 1)
    queue.arrive(0.0, 3, 1)
    queue.finish()
    assert queue.ttfts_s == pytest.approx([5 / 4 + 20 * 3 / 4] * 2)


def test_the_share_that_finds_all_places_taken_is_erlang_s() -> None:
    assert overflow_share(0, 3.0) == 1.0
    assert overflow_share(1, 3.0) == pytest.approx(3 / 4)
    assert overflow_share(2, 1.0) == pytest.approx((1 / 2) / (1 + 1 + 1 / 2))
    assert overflow_share(3, 3.95) == pytest.approx(10.27 / 23.02, rel=0.002)


def test_a_long_prompt_waits_for_blocks_and_all_that_come_wait_behind_it() -> None:
    queue = PromptQueue((Home(9, 10, lambda _: 1.0, 1.0),), 1000, 10)
    queue.arrive(0.0, 60, 20)  # six blocks, seven in the mean, until 21 s
    queue.arrive(2.0, 50, 20)
    queue.arrive(2.0, 10, 20)
    queue.finish()
    first, second, third = queue.ttfts_s
    assert first <= 2.0
    assert 19.0 <= second <= 22.0
    assert third == second


def test_prompts_that_pass_wait_until_those_before_them_have_left() -> None:
    def hosted(at_once: int) -> list[float]:
        here = Home(1, 10, lambda _: 1.0, 1000.0)
        queue = PromptQueue((here, Home(9, 100, lambda _: 1.0, 1.0, passes=True)), 1000, 10)
        queue.arrive(0.0, 10, 2)  # stays
        for _ in range(at_once):
            queue.arrive(5.0, 70, 500)
        queue.finish()
        return queue.ttfts_s[1:]

    alone, both = hosted(1), hosted(2)
    assert both[0] == alone[0]
    # a sweep of its own, those in which the one before leaves, and who has been submitted by then
    assert 2.0 <= both[1] - both[0] <= 5.0


def test_beside_who_stays_there_is_kept_room_for_a_prompt_like_it_to_pass() -> None:
    def first_s(passes: bool) -> float:
        here = Home(2, 10, lambda _: 1.0, 1.0)
        there = Home(9, 100, lambda _: 50.0, 1.0, passes=passes)
        queue = PromptQueue((here, there), 1000, 10)
        queue.arrive(0.0, 10, 20)
        queue.arrive(5.0, 50, 20)
        queue.finish()
        return queue.ttfts_s[1]

    assert first_s(passes=False) < 5.0  # on the accelerator
    assert first_s(passes=True) > 45.0
