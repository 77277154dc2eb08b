"""How long requests wait that come over time, where sweeps are launched ahead, and how they run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random

import pytest

from tandem.planner.arrival_queue import ArrivalQueue, Lived
from tandem.planner.queue_places import Home
from tandem.spec.workload import RequestShape

MANY = 1_000_000
ROOM = 100


@dataclass
class Prices:
    """Of sweeps that take by what they read and by who decodes.

    Attributes:
        sweep_s: by tokens that are read for each home. row_s: for each row. given: tokens of a row
            on the host in a sweep. asked: the tokens that were read for each home, sweep by sweep.
    """

    sweep_s: Callable[[Sequence[int]], float]
    step: int = ROOM
    row_s: float = 0.0
    given: float = 1.0
    waits: float = 0.0
    moved_s: float = 0.0
    ahead_s: float = 0.0

    def __post_init__(self) -> None:
        self.asked: list[list[int]] = []

    def seconds(self, here: int, there: int, read: Sequence[int]) -> float:
        self.asked.append(list(read))
        return self.sweep_s(read) + self.row_s * (here + there)

    def tokens_of_hosted(self, here: int, there: int, *, reads: bool) -> float:
        del here, there, reads
        return self.given

    def waits_of_hosted(self, there: int) -> float:
        return self.waits if there else 0.0

    def room(self, here: int, there: int) -> int:
        del here, there
        return self.step


def by_tokens(least_s: float, token_s: float, step: int = ROOM) -> Prices:
    return Prices(lambda read: least_s + token_s * sum(read), step)


def live(
    homes: Sequence[Home], prices: Prices, shapes: Sequence[tuple[float, int, int]], block: int = 1
) -> Lived:
    """Requests as (when one comes, tokens of its prompt, tokens after its first)."""
    requests = [RequestShape(prompt, later + 1, at_s) for at_s, prompt, later in shapes]
    return ArrivalQueue(homes, prices, block).live_through(requests)


def ttfts_s(lived: Lived) -> list[float]:
    return [request.first_s - request.arrival_s for request in lived.requests]


def poisson(
    every_s: float, prompt: int, later: int, count: int = 4000
) -> list[tuple[float, int, int]]:
    draw, now_s, found = Random(1), 0.0, list[tuple[float, int, int]]()
    for _ in range(count):
        now_s += draw.expovariate(1 / every_s)
        found.append((now_s, prompt, later))
    return found


EVERYWHERE = (Home(MANY, MANY**2),)


def mean_s(prices: Prices, every_s: float, later: int) -> float:
    """Of prompts of 10 tokens, which come so far apart in the mean, and have a place each."""
    found = ttfts_s(live(EVERYWHERE, prices, poisson(every_s, 10, later)))
    return sum(found) / len(found)


def test_who_comes_alone_waits_for_nobody() -> None:
    assert mean_s(by_tokens(1, 1 / 10), 1e4, 3) == pytest.approx(2, rel=0.01)


def test_who_comes_beside_others_waits_for_half_a_sweep_one_and_its_own() -> None:
    # prompts add nothing here, and there is always somebody
    assert mean_s(by_tokens(1, 0), 5.0, MANY) == pytest.approx(2.5, rel=0.02)


def test_prompts_that_come_in_one_sweep_are_read_together() -> None:
    """Gated service: a sweep takes 1 + N / 5, for the N that come in another: with m its mean, and
    v its variance, m = 1 + l m / 5 and v = l m / 25 + (l / 5)^2 v.
    """
    rate, each_s = 2.0, 0.2
    mean = 1 / (1 - rate * each_s)
    variance = rate * mean * each_s**2 / (1 - (rate * each_s) ** 2)
    seen = (mean**2 + variance) / mean  # the sweep in which one comes, in the mean
    expected = seen / 2 + mean + 1 + each_s * (1 + rate * seen)
    assert mean_s(by_tokens(1, each_s / 10), 1 / rate, MANY) == pytest.approx(expected, rel=0.03)


def test_a_prompt_that_no_sweep_has_room_for_takes_several() -> None:
    found = live(EVERYWHERE, by_tokens(1, 1 / 10, step=10), [(5.0, 25, 0), (5.0, 5, 0)])
    # two full ones, and one that both share
    assert ttfts_s(found) == pytest.approx([6.0, 6.0])
    assert [request.turn_s for request in found.requests] == pytest.approx([5.0, 9.0])


def test_a_long_prompt_is_read_in_one_go_as_if_sweep_by_sweep() -> None:
    def first_s(parts: int, prices: Prices) -> list[float]:
        """Of a long prompt, or of as many tokens in parts that fill a sweep each."""
        long = [(2.5, 64_000 // parts, 0)] * parts
        later = [(400.25, 30, 7), (1500.0, 7, 1)]
        return ttfts_s(live((Home(2000, MANY),), prices, [(1.0, 10, 3), *long, *later]))

    at_once = by_tokens(1, 1 / 64, step=64)
    whole = first_s(1, at_once)
    assert len(at_once.asked) < 40
    parted = first_s(1000, by_tokens(1, 1 / 64, step=64))
    assert whole == pytest.approx([parted[0], *parted[-3:]])


@pytest.mark.parametrize("room", [10, 40])
def test_less_room_never_waits_less(room: int) -> None:
    slow = mean_s(by_tokens(1, 1 / 50, step=room), 0.9, MANY)
    assert slow > 0.99 * mean_s(by_tokens(1, 1 / 50), 0.9, MANY)


def test_a_request_decodes_a_token_in_each_sweep_after_the_one_that_reads_its_prompt() -> None:
    found = live(EVERYWHERE, by_tokens(1, 1 / 10), [(5.0, 10, 7)])
    assert [(r.first_s, r.end_s) for r in found.requests] == [(7.0, 14.0)]
    assert found.end_s == 14.0
    assert found.reading_share == 1 / 8


def test_rows_that_decode_beside_each_other_make_sweeps_longer_for_all() -> None:
    prices = Prices(lambda _: 1.0, row_s=0.5)
    first, second = live(EVERYWHERE, prices, [(0.0, 1, 10), (0.0, 1, 4)]).requests
    # both are read in a sweep that nobody decodes in; then two rows, and one
    assert (first.first_s, second.first_s) == (1.0, 1.0)
    assert second.end_s == pytest.approx(1 + 4 * 2.0)
    assert first.end_s == pytest.approx(second.end_s + 6 * 1.5)


def test_rows_on_the_host_advance_by_a_part_of_a_token_and_wait_for_their_cohort() -> None:
    there = (Home(0, 0), Home(9, MANY, hosted=True))
    first, second = live(
        there, Prices(lambda _: 1.0, given=0.25, waits=0.5), [(0.0, 1, 3), (2.5, 1, 3)]
    ).requests
    assert first.end_s - first.first_s == 3 * 4
    assert second.end_s - second.first_s == 3 * 4 + 2


def test_weights_come_ahead_of_a_sweep_that_waits_for_them_while_one_before_waits_for_none() -> (
    None
):
    """Sweeps that only decode take as long as their weights, 1 s, of which a quarter has room."""
    prices = Prices(lambda read: 3.0 if sum(read) else 1.0, moved_s=1.0, ahead_s=0.25)
    first, second = live(EVERYWHERE, prices, [(5.0, 1, 6), (10.5, 1, 9)]).requests
    assert (first.turn_s, first.first_s) == (5.0, 8.0)
    # 7.75 and what follows: two that only decode before the second prompt is read, two after it
    assert second.turn_s == pytest.approx(8 + 4 * 1.0 - 0.25)
    assert first.end_s == pytest.approx(8 + 4 * 1.0 + 3.0 + 1.0 - 2 * 0.25)


def test_who_finds_all_places_taken_waits_until_one_has_ended() -> None:
    # its first token after 1 s, its last after 6
    one = live((Home(1, MANY),), by_tokens(1, 0), [(0.0, 10, 5), (0.0, 10, 5)])
    # the sweep that has been submitted when its end is known goes without anybody: none is
    assert ttfts_s(one) == pytest.approx([1.0, 7.0])
    # beside somebody there is one
    two = live((Home(2, MANY),), by_tokens(1, 0), [(0.0, 10, 5), (0.0, 10, 50), (0.0, 10, 5)])
    assert ttfts_s(two) == pytest.approx([1.0, 1.0, 8.0])


@pytest.mark.parametrize("places", [1, 3, 8])
def test_whoever_waits_for_a_place_does_so_as_in_a_queue_with_several_servers(places: int) -> None:
    """Where sweeps are short, each goes to the place that is free first."""
    draw, now_s = Random(2), 0.0
    free_s, waits_s, shapes = [0.0] * places, list[float](), list[tuple[float, int, int]]()
    for _ in range(2000):
        now_s += draw.expovariate(0.7 * places / 100)
        sweeps = round(draw.expovariate(1 / 100) * 1000)
        shapes.append((now_s, 1, sweeps))
        begins_s = max(now_s, heappop(free_s))
        waits_s.append(begins_s - now_s)
        heappush(free_s, begins_s + sweeps / 1000)
    found = live((Home(places, MANY**2),), by_tokens(1e-3, 0), shapes)
    assert sum(waits_s) / 2000 > 1
    assert sum(ttfts_s(found)) == pytest.approx(sum(waits_s), rel=0.01)


@pytest.mark.parametrize(("places", "offered"), [(1, 0.5), (5, 0.5), (5, 0.9), (20, 0.9)])
def test_the_share_that_finds_all_places_taken_is_erlang_s(places: int, offered: float) -> None:
    """His formula B, by its recurrence, of lengths of any kind and sweeps that are short."""
    shapes = [
        (at_s, 1, round(abs(Random(number).gauss(1000, 300))))
        for number, (at_s, _, _) in enumerate(poisson(1 / (offered * places), 1, 0))
    ]
    homes = Home(places, MANY**2), Home(MANY, MANY**2, hosted=True)
    found = live(homes, Prices(lambda _: 1e-3, given=1e-2), shapes)
    share = 1.0
    for place in range(1, places + 1):
        share = offered * places * share / (place + offered * places * share)
    there = sum(request.hosted for request in found.requests) / len(shapes)
    assert there == pytest.approx(share, rel=0.05, abs=0.01)


def test_the_second_home_takes_whom_the_first_has_no_place_for_and_reads_as_it_does() -> None:
    homes = Home(1, MANY), Home(1, MANY, hosted=True)
    prices = Prices(lambda read: 9.0 * read[1] if len(read) and read[1] else 1 + sum(read))
    found = ttfts_s(live(homes, prices, [(0.0, 1, 100), (10.0, 2, 1)]))
    # the sweep that is under way, and the one that has been submitted, take a second each
    assert found[0] == 2.0
    assert 18.0 <= found[1] <= 20.0
    assert [0, 2] in prices.asked


def test_a_long_prompt_waits_for_blocks_and_all_that_come_wait_behind_it() -> None:
    # six blocks, seven in the mean, until 21 s
    shapes = [(0.0, 60, 20), (2.0, 50, 20), (2.0, 10, 20)]
    first, second, third = ttfts_s(live((Home(9, 10),), by_tokens(1, 0, 1000), shapes, 10))
    assert first <= 2.0
    assert 19.0 <= second <= 22.0
    assert third == second


def test_prompts_that_pass_wait_until_those_before_them_have_left() -> None:
    homes = Home(1, 10), Home(9, 100, hosted=True, passes=True)

    def hosted(at_once: int) -> list[float]:
        shapes = [(0.0, 10, 15), *[(5.0, 70, 500)] * at_once]  # the first one stays
        return ttfts_s(live(homes, by_tokens(1, 0, 1000), shapes, 10))[1:]

    alone, both = hosted(1), hosted(2)
    assert both[0] == alone[0]
    # those in which the one before leaves, and who has been submitted by then
    assert both[1] - both[0] == 3.0


def test_so_they_do_where_the_device_has_no_place_but_for_them() -> None:
    homes = Home(0, 10), Home(9, 100, hosted=True, passes=True)
    first, second = live(homes, by_tokens(1, 0, 1000), [(0.0, 70, 5), (0.0, 70, 5)], 10).requests
    assert (first.first_s, second.first_s) == (1.0, 2.0)  # nothing else is in flight meanwhile
    assert first.hosted


def test_beside_who_stays_there_is_kept_room_for_a_prompt_like_it_to_pass() -> None:
    def goes_to_the_host(passes: bool) -> bool:
        homes = Home(2, 10), Home(9, 100, hosted=True, passes=passes)
        found = live(homes, by_tokens(1, 0, 1000), [(0.0, 10, 20), (5.0, 50, 20)], 10)
        return found.requests[1].hosted

    assert not goes_to_the_host(passes=False)
    assert goes_to_the_host(passes=True)
