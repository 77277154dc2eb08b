"""Steps chosen by predicted time, on a view of two rows on the accelerator and two on the host."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from tests.support.engines import TestEngine, toy_engine
from tests.support.step_prices import round_prices
from tests.unit.scheduler.priced_view import LAYERS, PROMPT, SETUP, all_decode, half_on_host

from tandem.cost.hand_overs import NO_HAND_OVERS, HandOvers
from tandem.cost.step_prices import StepPrices
from tandem.plan.binding import LongArray
from tandem.plan.program import StepProgram
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.step_work import StepCounter
from tandem.scheduler.strategies.auto import AWAY, Auto
from tandem.scheduler.strategies.ride_along import RideAlong
from tandem.scheduler.strategies.step_options import (
    ALONE,
    MEET,
    PASS,
    RIDE,
    RIDE_SOME,
    StepOptions,
)
from tandem.scheduler.view import SchedulerView
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams


@pytest.fixture
def engine() -> Iterator[TestEngine]:
    """Two requests that fit the accelerator and two that lie on the host, all decoding."""
    with half_on_host() as engine:
        yield engine


def way(engine: TestEngine, prices: StepPrices, **changes: object) -> str:
    view = engine.scheduler.view()._replace(**changes)
    proposal = Auto().propose(view, prices)
    assert proposal.computes
    return proposal.way


def bounded(engine: TestEngine, bound_s: float) -> SchedulerView:
    view = engine.scheduler.view()
    return view._replace(config=replace(view.config, tpot_bound_s=bound_s))


def test_half_of_the_requests_lie_on_the_host(engine: TestEngine) -> None:
    rows = engine.scheduler.rows
    assert (rows.num_host_blocks[rows.owned()] > 0).sum() == 2


def test_what_the_accelerator_hides_rides_along(engine: TestEngine) -> None:
    prices = round_prices(LAYERS, device_key_s=0.01, host_key_s=0.001)
    assert way(engine, prices) == RIDE


def test_what_would_hold_all_up_crosses_sweeps_as_a_cohort(engine: TestEngine) -> None:
    # one row's attention lasts half a sweep: riding would make a sweep many times as long
    assert way(engine, round_prices(LAYERS, host_key_s=0.1)) == MEET


def test_passes_pay_where_the_host_is_fast_and_nothing_hides_it(engine: TestEngine) -> None:
    # a layer's stages cost little beside the attention that rows on the accelerator wait for
    prices = round_prices(LAYERS, layer_s=0.1, device_key_s=0.04, host_key_s=0.1, wait_s=10.0)
    assert way(engine, prices).startswith(PASS)
    # two attentions of some 2 s each beside a layer of 2 s: a sweep that does not wait refuses one
    assert not way(engine, replace(prices, max_join_wait_s=0.0)).startswith(PASS)


@pytest.mark.parametrize(
    ("key_s", "wait_s", "ahead"), [(0.1, 0.0, False), (0.1, 1.0, True), (0.12, 1.0, False)]
)
def test_cohorts_join_ahead_where_sweeps_wait_for_less_than_it_brings(
    engine: TestEngine, key_s: float, wait_s: float, ahead: bool
) -> None:
    """Two attentions to some 21 keys each in a sweep of 4 s: ahead, a token takes 6 sweeps, else
    9, which brings a twentieth.
    """
    prices = round_prices(LAYERS, host_key_s=key_s, wait_s=wait_s)
    chosen = Auto().propose(engine.scheduler.view(), prices)
    assert chosen.way == MEET
    assert chosen.starts_ahead == ahead


def test_rows_ride_in_turns_where_some_are_hidden(engine: TestEngine) -> None:
    # the window is as long as one row's attention, and there is no room for cohorts
    view = engine.scheduler.view()
    config = replace(view.config, max_cohorts=0)
    prices = round_prices(LAYERS, layer_s=0.1, device_key_s=0.01, host_key_s=0.0195)
    proposal = Auto().propose(view._replace(config=config), prices)
    assert proposal.way == RIDE_SOME
    rows = engine.scheduler.rows
    hosted = proposal.decode[rows.num_host_blocks[proposal.decode] > 0]
    assert (len(proposal.decode), len(hosted)) == (3, 1)
    waiting = set(view.runnable.decodes.tolist()) - set(proposal.decode.tolist())
    assert rows.last_step[hosted[0]] <= min(rows.last_step[row] for row in waiting)


def test_a_bound_on_the_step_comes_before_its_rate(engine: TestEngine) -> None:
    prices = round_prices(LAYERS, layer_s=1.0, host_key_s=0.005)
    assert way(engine, prices) == RIDE
    free = Auto().propose(bounded(engine, 100.0), prices).way
    tight = Auto().propose(bounded(engine, 4.01), prices).way
    assert (free, tight) == (RIDE, MEET)


def test_what_no_step_keeps_is_broken_by_as_little_as_possible(engine: TestEngine) -> None:
    prices = round_prices(LAYERS, layer_s=1.0, token_s=0.01, host_key_s=0.005)
    assert Auto().propose(bounded(engine, 0.1), prices).way == ALONE


def test_nothing_changes_for_a_little_more(engine: TestEngine) -> None:
    # riding takes as many seconds more as make both ways about equal
    def prices(host_key_s: float) -> StepPrices:
        return round_prices(LAYERS, host_key_s=host_key_s)

    low, high = 1e-4, 0.1  # riding is best at the one, cohorts at the other
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if way(engine, prices(middle)) == RIDE else (low, middle)
    above, below = prices(high * 1.01), prices(low * 0.99)
    assert way(engine, above) == MEET
    assert way(engine, above, last_way=RIDE) == RIDE
    assert way(engine, below) == RIDE
    assert way(engine, below, last_way=MEET) == MEET
    assert way(engine, prices(high * 1.5), last_way=RIDE) == MEET


def test_nobody_waits_for_ever(engine: TestEngine) -> None:
    # rows on the host never pay, whatever is done with them
    prices = round_prices(LAYERS, host_key_s=1e3, wait_s=1e3)
    view = engine.scheduler.view()
    assert way(engine, prices) == ALONE
    late = view._replace(next_step=view.next_step + 2 * 4 * LAYERS + 2)
    chosen = Auto().propose(late, prices)
    hosted = chosen.decode[view.rows.num_host_blocks[chosen.decode] > 0]
    assert len(hosted) or chosen.cohort_starts


def test_a_cohort_that_does_not_pay_is_parked_for_no_longer_than_is_promised(
    engine: TestEngine,
) -> None:
    """It has begun when each of its joins is found to hold all others up."""
    scheduler, parked = engine.scheduler, 0
    scheduler.strategy, scheduler.prices = Auto(), round_prices(LAYERS, host_key_s=0.1)
    while not scheduler.cohorts:
        engine.core.step()
    scheduler.prices = round_prices(LAYERS, host_key_s=1e3, wait_s=1e3)
    commit, gaps = scheduler._commit, list[int]()

    def seen(proposal: StepProposal, view: SchedulerView) -> list[StepProgram]:
        nonlocal parked
        if proposal.cohort_joins:
            gaps.append(parked)
        parked = 0 if proposal.cohort_joins else parked + proposal.computes
        return commit(proposal, view)

    scheduler._commit = seen
    while scheduler.cohorts:
        engine.core.step()
    promised = 8 + scheduler.config.launch_ahead_steps  # a layer's part of invariant 6
    assert len(gaps) >= LAYERS - 1
    assert 4 < max(gaps) <= promised


def test_what_is_chosen_is_counted() -> None:
    prices = round_prices(LAYERS, host_key_s=0.1)
    with toy_engine(replace(SETUP, strategy="auto", prices=prices), LAYERS) as engine:
        for number in range(4):
            engine.core.add_request(asked(str(number), 20))
        while engine.core.has_work():
            engine.core.step()
        ways = engine.stats.ways
        assert sum(ways.values()) == engine.stats.num_steps
    assert ways[MEET] > 20


def test_without_prices_rows_ride_along(engine: TestEngine) -> None:
    proposal = Auto().propose(engine.scheduler.view(), None)
    assert sorted(proposal.decode.tolist()) == sorted(engine.scheduler.rows.owned().tolist())
    assert proposal.way == ""


# --- whether to start on the host -----------------------------------------------------------------


def admissions(
    prices: StepPrices,
    coming: list[EngineRequest],
    *,
    running: int | None = 60,
    dues: Mapping[str, float] | None = None,
    **changes: object,
) -> list[str]:
    """Further requests come where two decode on each side, with `max_tokens` as `running` says:
    those that start on the host.
    """
    with toy_engine(replace(SETUP, **{"max_host_seqs": 4, **changes}), LAYERS) as engine:
        for number in range(4):
            engine.core.add_request(asked(str(number), running))
        while not all_decode(engine):
            engine.core.step()
        for each in coming:
            engine.core.add_request(each)
        view = engine.scheduler.view()._replace(dues=dues or {})
        proposal = Auto().propose(view, prices)
        assert proposal.computes
        assert all(each.device_limit == 0 for each in proposal.admissions)
        return [each.request_id for each in proposal.admissions]


def test_who_starts_on_the_host_need_not_come_in_the_order_of_the_queue() -> None:
    """Who was preempted starts there behind others; as many are kept, from the first one on."""
    with toy_engine(replace(SETUP, max_host_seqs=4), LAYERS) as engine:
        for number in range(4):
            engine.core.add_request(asked(str(number), 60))
        while not all_decode(engine):
            engine.core.step()
        engine.core.add_request(asked("before", 1))
        engine.core.add_request(asked("behind", 100))
        view = engine.scheduler.view()
        given = RideAlong().propose(view, None)
        other = given._replace(admissions=given.admissions[::-1])
        assert [each.request_id for each in other.admissions] == ["behind", "before"]
        kept = StepOptions(view, LATE_HOST).admitting(other)
        assert [each.request_id for each in kept.admissions] == ["behind"]


def asked(name: str, max_tokens: int | None, priority: int = 0) -> EngineRequest:
    params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    return EngineRequest(name, tuple(range(1, PROMPT + 1)), params, priority)


def priced_pairs(pair_s: float) -> StepPrices:
    """Hosts that compute slowly: their attention to prompts takes so long for each pair."""
    prices = round_prices(LAYERS, layer_s=1.0, host_key_s=1e-3)
    return replace(prices, host=replace(prices.host, pair_s=pair_s))


def test_a_request_starts_on_the_host_if_its_tokens_repay_its_prompt_there() -> None:
    # each token saves less than the 2 s that the accelerator would take for it; a prompt's 210
    # pairs in each of four layers cost 84 s
    assert admissions(priced_pairs(0.1), [asked("new", 100)]) == ["new"]
    assert admissions(priced_pairs(0.1), [asked("new", 20)]) == []
    assert admissions(priced_pairs(1e-4), [asked("new", 20)]) == ["new"]


def test_no_request_starts_where_every_token_would_cost() -> None:
    prices = round_prices(LAYERS, layer_s=0.01, host_key_s=10.0, wait_s=10.0)
    assert admissions(prices, [asked("new", 200)]) == []


# whatever rides, each of four layers takes 1.6 s longer: among three rows on the host that is more
# than the 2 s that the accelerator takes for a token, among four it is less
DEAR_START = replace(
    priced_pairs(1e-4), host=replace(priced_pairs(1e-4).host, start_s=1.6)
)  # fmt: skip


def test_nobody_waits_for_being_the_first() -> None:
    one, two = asked("one", 100), asked("two", 100)
    assert admissions(DEAR_START, [one], max_cohorts=0) == []
    assert admissions(DEAR_START, [one, two], max_cohorts=0) == ["one", "two"]
    assert admissions(DEAR_START, [one, asked("short", 2)], max_cohorts=0) == []


@pytest.mark.parametrize("short", [2, 8])
def test_nobody_waits_for_who_comes_behind(short: int) -> None:
    """A prompt costs 6.5 s: more for each of two tokens than any could save, and for each of eight
    than they do.
    """
    coming = [asked("one", 100), asked("two", 100), asked("short", short), asked("last", 100)]
    room: dict[str, Any] = {"max_cohorts": 0, "max_host_seqs": 6, "host_blocks": 64}
    assert admissions(DEAR_START, coming[:3], **room) == ["one", "two"]
    assert admissions(DEAR_START, coming, **room) == ["one", "two"]


def test_those_behind_one_that_is_due_are_weighed_with_it() -> None:
    """With the second alone beside it, no token pays; with the third, they do."""
    coming = [asked(name, 100) for name in ("due", "second", "third")]
    dear = replace(DEAR_START, host=replace(DEAR_START.host, start_s=1.95))
    room: dict[str, Any] = {"max_cohorts": 0, "max_host_seqs": 6, "host_blocks": 64}
    due = {"due": 14.0}
    assert admissions(dear, coming[:2], dues={}, **room) == []
    assert admissions(dear, coming[:2], dues=due, **room) == ["due"]
    assert admissions(dear, coming, dues=due, **room) == ["due", "second", "third"]


@pytest.mark.parametrize("pay", range(7))
def test_as_many_start_as_pay(pay: int) -> None:
    """Of six alike, of which each takes the host longer."""
    # of so many more, each attends to 70 keys, beside 100 of two rows that are there
    keys, rows = 100 + 70 * (pay + 0.5), 2 + pay + 0.5
    prices = round_prices(LAYERS, layer_s=1.0, host_key_s=2 * rows / LAYERS / keys)
    coming = [asked(str(10 + number), 100) for number in range(6)]
    room: dict[str, Any] = {"max_num_seqs": 12, "max_host_seqs": 8, "host_blocks": 128}
    found = admissions(prices, coming, max_cohorts=0, **room)
    assert len(found) == pay


def on_host_half_way(counter: StepCounter, rows: LongArray, *coming: float) -> float:
    """Keys there of some rows, and of ones that come with so many."""
    contexts = np.concatenate([counter.contexts_half_way(rows), np.array(coming)])
    return counter.keys_half_way(contexts)


def half_way(max_tokens: int | None, **changes: object) -> tuple[float, float]:
    """Keys of two rows on each side, and of one that comes to the host, in the mean."""
    with toy_engine(replace(SETUP, **changes), LAYERS) as engine:
        for number in range(4):
            engine.core.add_request(asked(str(number), max_tokens))
        while not all_decode(engine):
            engine.core.step()
        view = engine.scheduler.view()
        decodes = view.runnable.decodes
        on_host = view.rows.num_host_blocks[decodes] > 0
        counter = StepCounter(view, priced_pairs(0.1))
        work = counter.half_way(decodes[~on_host])
        assert work.queries == (~on_host).sum() == on_host.sum() == 2
        return work.keys, on_host_half_way(counter, decodes[on_host], 70.0)


def test_rows_count_half_way_through_their_outputs() -> None:
    assert half_way(60) == (2 * (PROMPT + 30), 2 * (PROMPT + 30) + 70)


def test_rows_count_no_more_than_there_is_room_for() -> None:
    """Without `max_tokens` each could become 256 long, and be so for half of the time."""
    assert half_way(None, device_blocks=18, host_blocks=22) == (2 * 138, 2 * 138 + 70)
    assert half_way(None, device_blocks=17, host_blocks=21) == (17 * 16, pytest.approx(21 * 16))


def test_a_row_that_lies_in_both_tiers_counts_what_grows_on_the_host() -> None:
    """Of a prompt of 20 and 180 more, what lies beyond the six blocks that are on the device."""
    setup = replace(SETUP, device_blocks=8, split_blocks=6, max_host_seqs=1, max_device_seqs=0)
    with toy_engine(setup, LAYERS) as engine:
        engine.core.add_request(asked("long", 180))
        rows = engine.scheduler.rows
        while not (len(rows.owned()) and rows.num_host_blocks[rows.owned()[0]]):
            engine.core.step()
        counter = StepCounter(engine.scheduler.view(), priced_pairs(0.1))
        keys = on_host_half_way(counter, rows.owned())
    seen = [max(0, length - 6 * 16) for length in range(PROMPT, PROMPT + 181)]
    assert keys == pytest.approx(sum(seen) / 180, rel=0.02)


@pytest.mark.parametrize("max_tokens", [60, None])
def test_rows_that_name_no_bound_do_not_make_the_accelerator_slow(max_tokens: int | None) -> None:
    """A host five times as slow as the accelerator, which is busy with attention: whatever those
    that run may become.
    """
    prices = round_prices(LAYERS, layer_s=0.01, device_key_s=0.01, host_key_s=0.05)
    prices = replace(prices, host=replace(prices.host, pair_s=0.02))
    assert admissions(prices, [asked("new", 60)], running=max_tokens, max_cohorts=0) == []


# one row's attention lasts half a sweep: riding with three makes a sweep 2.5 times as long, and in
# cohorts a token takes four sweeps and more
LATE_HOST = round_prices(LAYERS, layer_s=1.0, host_key_s=0.05)


@pytest.mark.parametrize(("bound_s", "starts"), [(None, True), (100.0, True), (6.0, False)])
def test_a_request_starts_on_the_host_if_its_tokens_come_there_within_the_bound(
    bound_s: float | None, starts: bool
) -> None:
    found = admissions(LATE_HOST, [asked("new", 100)], tpot_bound_s=bound_s)
    assert found == (["new"] if starts else [])


def test_flexible_requests_start_where_others_wait_for_the_accelerator() -> None:
    coming = [asked("first", 100), asked("flex", 100, 1), asked("second", 100)]
    assert admissions(LATE_HOST, coming, tpot_bound_s=6.0) == ["flex"]
    assert admissions(LATE_HOST, coming) == ["first", "second"]


def test_the_bound_is_kept_where_nobody_is_on_the_host_yet() -> None:
    setup = replace(SETUP, max_host_seqs=4, tpot_bound_s=6.0)
    with toy_engine(setup, LAYERS) as engine:
        for number in range(2):
            engine.core.add_request(asked(str(number), 60))
        while not engine.scheduler.view().runnable.decodes.size:
            engine.core.step()
        for each in (asked("first", 100), asked("flex", 100, 1)):
            engine.core.add_request(each)
        proposal = Auto().propose(engine.scheduler.view(), LATE_HOST)
        assert [each.request_id for each in proposal.admissions] == ["flex"]


def test_the_bound_is_kept_where_nothing_decodes_yet() -> None:
    """Of those that come at once, two fill the accelerator, in the same step."""
    setup = replace(SETUP, max_host_seqs=4, tpot_bound_s=6.0)
    with toy_engine(setup, LAYERS) as engine:
        for each in (asked("0", 60), asked("1", 60), asked("late", 60), asked("flex", 60, 1)):
            engine.core.add_request(each)
        proposal = Auto().propose(engine.scheduler.view(), LATE_HOST)
        places = {each.request_id: each.device_limit == 0 for each in proposal.admissions}
        assert places == {"0": False, "1": False, "flex": True}


def test_nobody_waits_for_an_accelerator_that_has_no_room_at_all() -> None:
    """Where nothing decodes there, requests start on the host whatever the bound."""
    setup = replace(SETUP, device_blocks=0, tpot_bound_s=1e-6, strategy="auto", prices=LATE_HOST)
    with toy_engine(setup, LAYERS) as engine:
        engine.core.add_request(asked("only", 5))
        tokens = 0
        while engine.core.has_work():
            tokens += sum(len(output.token_ids) for output in engine.core.step())
        assert tokens == 5


# --- turns ----------------------------------------------------------------------------------------


def in_turns(engine: TestEngine, prices: StepPrices) -> list[tuple[int, ...]]:
    """Rows that decode in each of some sweeps, no cohorts allowed."""
    scheduler = engine.scheduler
    scheduler.strategy, scheduler.prices = Auto(), prices
    scheduler.config = replace(scheduler.config, max_cohorts=0)
    chosen: list[tuple[int, ...]] = []
    commit = scheduler._commit

    def seen(proposal: StepProposal, view: SchedulerView) -> list[StepProgram]:
        chosen.append(tuple(proposal.decode.tolist()))
        return commit(proposal, view)

    scheduler._commit = seen
    while len(chosen) < 24:
        engine.core.step()
    return chosen


ONE_AT_A_TIME = round_prices(LAYERS, layer_s=0.1, device_key_s=0.01, host_key_s=0.0195)


def test_who_rides_in_turns_rides_for_some_sweeps_and_all_have_theirs(engine: TestEngine) -> None:
    chosen = in_turns(engine, ONE_AT_A_TIME)
    runs = [len(list(group)) for _, group in groupby(chosen)]
    # half of the four sweeps per layer that a row may wait, shared by two
    assert runs[:-1] == [LAYERS] * (len(runs) - 1)
    hosted = {row for rows in chosen for row in rows}
    assert len(hosted) == 4
    assert engine.scheduler.last_way == RIDE_SOME


def test_within_a_turn_nothing_is_weighed(
    engine: TestEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    weighed = 0
    make = StepOptions.__post_init__

    def count(options: StepOptions) -> None:
        nonlocal weighed
        weighed += 1
        make(options)

    monkeypatch.setattr(StepOptions, "__post_init__", count)
    chosen = in_turns(engine, ONE_AT_A_TIME)
    assert weighed == len(chosen) // LAYERS


def test_a_turn_is_over_once_somebody_comes_or_ends_or_prices_change(engine: TestEngine) -> None:
    scheduler = engine.scheduler
    in_turns(engine, ONE_AT_A_TIME)
    view = view_in_turn(engine)
    assert view.turn is not None
    assert view.turn.holds(view, ONE_AT_A_TIME)
    assert not view.turn.holds(view, replace(ONE_AT_A_TIME, launch_s=1.0))
    params = SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True)
    engine.core.add_request(EngineRequest("new", (1, 2, 3), params))
    new = scheduler.running.find("new")
    assert new is not None
    while new.row is None:
        engine.core.step()
    assert scheduler.view().turn is None  # a row has another owner
    view_in_turn(engine)
    owned = scheduler.rows.owned()
    engine.core.abort(str(scheduler.rows.request_ids[owned[-1]]))
    assert scheduler.view().turn is None


def view_in_turn(engine: TestEngine) -> SchedulerView:
    """As soon as a choice may be kept to."""
    while engine.scheduler.view().turn is None:
        engine.core.step()
    return engine.scheduler.view()


@pytest.mark.parametrize("crosses", [False, True])
def test_rows_on_the_host_are_set_aside_and_end_with_the_same_tokens(crosses: bool) -> None:
    def tokens(prices: StepPrices | None) -> tuple[dict[str, list[int]], set[str]]:
        found, ways = dict[str, list[int]](), set[str]()
        with half_on_host() as engine:
            scheduler = engine.scheduler
            if prices is not None:
                scheduler.strategy = Auto()
                free = replace(prices, hand_overs=NO_HAND_OVERS)
                scheduler.prices = scheduler._base_prices = free if crosses else prices
            for number in range(1000):
                if not scheduler.has_work:
                    break
                if number == 8 and prices is not None:
                    assert bool(scheduler.cohorts) is crosses
                    scheduler.prices = scheduler._base_prices = prices
                for output in engine.core.step():
                    found.setdefault(output.request_id, []).extend(output.token_ids)
                ways.add(scheduler.last_way)
                scheduler.check()
            assert not scheduler.has_work
        return found, ways

    slow = round_prices(LAYERS, host_key_s=0.1 if crosses else 0.0)
    dear = HandOvers(decodes_s=100.0, cohorts_s=100.0)
    expected, _ = tokens(None)
    given, ways = tokens(replace(slow, hand_overs=dear))
    assert given == expected
    assert AWAY in ways
