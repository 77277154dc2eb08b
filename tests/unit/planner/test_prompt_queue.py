"""How long prompts wait that come one by one, where sweeps are launched ahead."""

from random import Random

import pytest

from tandem.planner.prompt_queue import PromptQueue, SweepWithPromptsS


def mean_s(sweep_s: SweepWithPromptsS, every_s: float, decoding_s: float, room: int = 100) -> float:
    """Of prompts of 10 tokens, which come so far apart in the mean."""
    queue, draw, now_s = PromptQueue(sweep_s, room, decoding_s), Random(1), 0.0
    for _ in range(4000):
        now_s += draw.expovariate(1 / every_s)
        queue.arrive(now_s, 10)
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
    queue = PromptQueue(lambda tokens: 1 + tokens / 10, 10, 0.0)
    queue.arrive(5.0, 25)
    queue.arrive(5.0, 5)
    queue.finish()
    # two full ones, and one that both share
    assert queue.ttfts_s == pytest.approx([6.0, 6.0])


@pytest.mark.parametrize("room", [10, 40])
def test_less_room_never_waits_less(room: int) -> None:
    slow = mean_s(lambda tokens: 1 + tokens / 50, 0.9, 1e9, room)
    fast = mean_s(lambda tokens: 1 + tokens / 50, 0.9, 1e9, 100)
    assert slow > 0.99 * fast
