"""Ranges of rows whose programmes are not solved: those that could not matter."""

import pytest
from tests.unit.planner.questions import ask, short

from tandem.models.catalogue import plannable_spec
from tandem.planner.footprint import Footprint
from tandem.planner.policies import POLICIES
from tandem.planner.question import Question
from tandem.planner.relaxation import ceiling
from tandem.planner.relaxation.bounded import Bounded
from tandem.planner.relaxation.ceiling import Ceilings
from tandem.planner.relaxation.cohort_times import has_closed_form, least_token_s
from tandem.planner.relaxation.prices import Prices
from tandem.planner.relaxation.rows import NO_ROWS, Range, Rows
from tandem.planner.relaxation.shares import Shares, Start, least_shares
from tandem.planner.relaxation.sweep_kinds import SweepKind, least_ratio, weighted_kinds
from tandem.planner.relaxation.way import Way, homes_of, joined, ways

SMALL = short(plannable_spec("llama-3.1-8b"), 8)
QUESTIONS = [
    ask(SMALL, device_bytes=6 * 10**9),
    ask(SMALL, device_bytes=3 * 10**9),
    ask(SMALL, "t4", device_bytes=3 * 10**9, prompt="100", generate="400"),
    ask(short(plannable_spec("qwen3-30b-a3b"), 8), device_bytes=6 * 10**9),
]


def ranges(question: Question) -> tuple[Ceilings, list[Bounded]]:
    """The most promising ones."""
    ceilings = Ceilings(question, Footprint(question), POLICIES["auto"], steps=(0,))
    return ceilings, list(ceilings.with_runners_up(5).ranges)


@pytest.mark.parametrize("question", QUESTIONS)
def test_ranges_are_those_of_all_programmes_and_fewer_are_solved(
    question: Question, monkeypatch: pytest.MonkeyPatch
):
    ceilings, found = ranges(question)
    with monkeypatch.context() as patch:
        patch.setattr(Ceilings, "_slower", lambda *_: 1.0)
        every, expected = ranges(question)
    # the same optimum is reached from other bases, and summed in another order
    rates = [b.tokens_per_s for b in expected]
    assert [b.tokens_per_s for b in found] == pytest.approx(rates, rel=1e-12)
    assert {(b.way, b.rows) for b in found} == {(b.way, b.rows) for b in expected}
    assert ceilings.programmes < every.programmes


@pytest.mark.parametrize("question", QUESTIONS)
def test_ranges_have_the_shares_that_their_programmes_give_alone(
    question: Question, monkeypatch: pytest.MonkeyPatch
):
    """Programmes of ranges that are halved begin where others ended; those of the found do not."""
    begun: list[object] = []

    def solved(prices: Prices, way: Way, rows: Rows, start: Start | None = None) -> Shares | None:
        begun.append(start)
        return least_shares(prices, way, rows)

    _, found = ranges(question)
    monkeypatch.setattr(ceiling, "least_shares", solved)
    _, expected = ranges(question)
    assert any(begun)
    assert [b.tokens_per_s for b in found] == pytest.approx([b.tokens_per_s for b in expected])
    assert [(b.way, b.rows, b.shares.layers, b.shares.hosted) for b in found] == [
        (b.way, b.rows, b.shares.layers, b.shares.hosted) for b in expected
    ]


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_range_promises_more_than_is_known_of_it_without_a_programme(
    question: Question, monkeypatch: pytest.MonkeyPatch
):
    """Of each programme that is solved, what had been known of its range is no less."""
    bounded: list[tuple[float, float]] = []
    push = Ceilings._push

    def seen(self: Ceilings, at_most: float, node: object) -> None:
        if isinstance(node, Bounded):
            bounded.append((known.pop(), 1 / node.shares.token_s))
        push(self, at_most, node)  # pyright: ignore[reportArgumentType]

    known: list[float] = []
    solve = Ceilings._solve

    def solved(self: Ceilings, node: object, at_most: float) -> None:
        known[:] = [at_most]
        solve(self, node, at_most)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(Ceilings, "_push", seen)
    monkeypatch.setattr(Ceilings, "_solve", solved)
    ranges(question)
    assert len(bounded) > 10
    assert all(found <= at_most * (1 + 1e-6) for at_most, found in bounded)


def test_sweeps_of_which_each_serves_half_take_twice_the_time_per_token():
    kinds = [SweepKind(0.75, 0.0, True, 0), SweepKind(0.25, 0.25 / 8, True, 512)]
    halved = [SweepKind(0.75, 0.0, True, 0), SweepKind(0.25, 0.25 / 4, True, 512)]
    assert least_ratio([weighted_kinds(halved, 4)], [weighted_kinds(kinds, 8)]) == 2.0


def test_sweeps_that_read_less_may_take_any_time():
    kinds = [SweepKind(0.75, 0.0, True, 0), SweepKind(0.25, 0.0, True, 512)]
    shorter = [SweepKind(0.75, 0.0, True, 0), SweepKind(0.25, 0.0, True, 256)]
    assert least_ratio([weighted_kinds(shorter, 4)], [weighted_kinds(kinds, 8)]) == 1.0


def test_more_sweeps_with_prompts_count_for_those_without():
    """A sweep with a prompt takes no less than one without."""
    kinds = [SweepKind(0.75, 0.0, True, 0), SweepKind(0.25, 0.0, True, 512)]
    more = [SweepKind(0.25, 0.0, True, 0), SweepKind(0.75, 0.0, True, 512)]
    assert least_ratio([weighted_kinds(more, 4)], [weighted_kinds(kinds, 8)]) == 2.0


def test_ways_that_are_bounded_as_one_take_no_less_than_that():
    """Of some ranges, whichever of the ways it is; and there are fewer of them."""
    question = QUESTIONS[1]
    footprint = Footprint(question)
    prices, policy = Prices(question, footprint), POLICIES["auto"]
    homes, layers = homes_of(policy, question, footprint), question.model.num_layers
    every = list(ways(policy, homes, layers, alone=False, may_read_here=True))
    groups = joined(every, reading=True)
    assert sorted(way for members in groups.values() for way in members) == sorted(every)
    some = [(whole, members) for whole, members in groups.items() if not whole.has_cohort]
    assert any(len({way.homes for way in members}) > 1 for _, members in some)
    compared = 0
    for whole, members in some:
        for through in Range(2, 3), Range(24, 32), Range(130, 200):
            rows = Rows(through)
            least = least_shares(prices, whole, rows)
            for way in members if len(members) > 1 else ():
                found = least_shares(prices, way, rows)
                if found is not None:
                    assert least is not None
                    assert least.token_s <= found.token_s * (1 + 1e-9)
                    compared += 1
    assert compared > 10


def test_cohorts_that_are_bounded_as_one_take_no_less_than_that():
    question = QUESTIONS[1]
    footprint = Footprint(question)
    prices, policy = Prices(question, footprint), POLICIES["auto"]
    homes, layers = homes_of(policy, question, footprint), question.model.num_layers
    every = ways(policy, homes, layers, alone=False, may_read_here=True)
    groups = joined((way for way in every if way.has_cohort), reading=True)
    assert all(has_closed_form(prices, whole) for whole in groups)
    rows = Rows(Range(2, 3), Range(24, 30))
    for whole, members in groups.items():
        assert len(members) == 2
        here = rows._replace(through=NO_ROWS) if whole.alone else rows
        least = least_token_s(prices, whole, here)
        assert all(least <= least_token_s(prices, way, here) for way in members)


def test_where_a_bound_on_time_is_kept_prompts_are_read_in_one_place():
    question = ask(SMALL, device_bytes=3 * 10**9, tpot_bound_s=0.2)
    ceilings = Ceilings(question, Footprint(question), POLICIES["auto"], steps=(0,))
    assert not any(way.reads_anywhere for way in ceilings._members)
