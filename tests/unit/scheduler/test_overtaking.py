"""Requests of a low priority get on behind a steady load of higher ones, and no faster than that.

The engine is the toy's: pools far too small for all, so that admission and memory are fought for.
"""

from array import array
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest
from tests.support.engines import TestEngine, toy_engine
from tests.support.overtakings import OvertakingWatch
from tests.support.setups import Setup

from tandem.scheduler.overtaking import Overtaking
from tandem.scheduler.rows import UNLIMITED, RowTable
from tandem.scheduler.seating import set_up_row
from tandem.scheduler.sequence import Sequence
from tandem.scheduler.waiting import WaitingQueue
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

_MOST, _ROWS = 3, 4
_SETUP = Setup(
    device_blocks=8,
    host_blocks=8,
    block_size=4,
    max_num_seqs=_ROWS,
    max_host_seqs=4,
    most_overtaken=_MOST,
)
_FLEX, _DEFAULT, _PRIORITY = 1, 0, -1


def request(name: str, priority: int, tokens: int = 10) -> EngineRequest:
    sampling = SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True)
    return EngineRequest(name, tuple(range(1, 7)), sampling, priority=priority)


def under_load(engine: TestEngine, *priorities: int, steps: int) -> Iterator[dict[str, int]]:
    """Steps with three more waiting requests of each of these priorities at any time, whatever
    ends; yields how many tokens each step brings, by request.
    """
    watch, names = OvertakingWatch(engine), map("load{}".format, count())
    taken = set(engine.scheduler.running.ids())
    for _ in range(steps):
        waiting = [each.request.priority for each in engine.scheduler.waiting]
        for priority in priorities:
            for _ in range(3 - waiting.count(priority)):
                name = next(name for name in names if name not in taken)
                engine.core.add_request(request(name, priority))
        yield {each.request_id: len(each.token_ids) for each in engine.core.step()}
        watch.look()


def ended_before(engine: TestEngine, name: str, *priorities: int, steps: int = 600) -> int:
    """Requests of a steady load whose last token comes before this one's."""
    ended, tokens = 0, dict[str, int]()
    for news in under_load(engine, *priorities, steps=steps):
        for each, got in news.items():
            tokens[each] = tokens.get(each, 0) + got
            ended += tokens[each] == 10
        if tokens.get(name, 0) == 10:
            return ended
    raise AssertionError(f"{name} has {tokens.get(name, 0)} tokens, while {ended} requests ended")


@pytest.mark.parametrize("strategy", ["gpu-only", "ride-along", "rendezvous", "auto", "neo"])
def test_a_flex_request_gets_on_behind_a_steady_default_load(strategy: str) -> None:
    with toy_engine(replace(_SETUP, strategy=strategy)) as engine:
        list(under_load(engine, _DEFAULT, steps=20))
        engine.core.add_request(request("flex", _FLEX))
        assert ended_before(engine, "flex", _DEFAULT) <= _MOST + 3 * _ROWS


def test_each_tier_above_may_overtake_as_often() -> None:
    with toy_engine(_SETUP) as engine:
        engine.core.add_request(request("flex", _FLEX))
        assert ended_before(engine, "flex", _DEFAULT, _PRIORITY) <= 2 * (_MOST + _ROWS) + 2 * _ROWS
    with toy_engine(_SETUP) as engine:
        list(under_load(engine, _PRIORITY, steps=20))
        engine.core.add_request(request("default", _DEFAULT))
        assert ended_before(engine, "default", _PRIORITY) <= _MOST + 3 * _ROWS


def test_a_queue_of_flex_requests_gets_one_place_for_so_many_of_the_load() -> None:
    with toy_engine(_SETUP) as engine:
        list(under_load(engine, _DEFAULT, steps=10))
        for number in range(40):
            engine.core.add_request(request(f"flex{number}", _FLEX))
        ended, tokens = {_FLEX: 0, _DEFAULT: 0}, dict[str, int]()
        for news in under_load(engine, _DEFAULT, steps=250):
            for name, got in news.items():
                tokens[name] = tokens.get(name, 0) + got
                ended[_FLEX if name.startswith("flex") else _DEFAULT] += tokens[name] == 10
        assert ended[_FLEX] >= 3
        assert ended[_DEFAULT] >= _MOST * ended[_FLEX]


def test_a_row_whose_memory_is_taken_again_and_again_keeps_it_in_the_end() -> None:
    setup = replace(_SETUP, host_blocks=0, max_host_seqs=0, max_num_seqs=2, device_blocks=7)
    with toy_engine(setup) as engine:
        engine.core.add_request(request("long", _FLEX, tokens=20))
        tokens = 0
        for news in under_load(engine, _DEFAULT, steps=800):
            tokens += news.get("long", 0)
            if tokens == 20:
                return
        raise AssertionError(f"{tokens} tokens")


def sequence(priority: int, arrival: int) -> Sequence:
    given = request(f"{priority}.{arrival}", priority)
    tokens = array("i", given.prompt_token_ids)
    return Sequence(given, arrival, 0, 40, frozenset(), tokens)


def test_of_many_rows_only_those_are_looked_at_that_are_raised() -> None:
    """Each look brings a sequence's tokens over: that takes the time of many steps."""
    rows, looked = RowTable(6, 1), list[int]()
    behind = [sequence(_FLEX, arrival) for arrival in (0, 1, 2, 12)]
    for each in behind:
        set_up_row(rows, rows.take(), each, UNLIMITED)

    def sequence_of(row: int) -> Sequence:
        looked.append(row)
        return behind[row]

    overtaking = Overtaking(rows, WaitingQueue(), sequence_of, 3)
    for arrival in (10, 11):
        overtaking.by(sequence(_DEFAULT, arrival))
    overtaking.settle()
    assert looked == []
    rows.known[1] += 1  # one more token: it is counted anew
    overtaking.by(sequence(_DEFAULT, 13))
    overtaking.settle()
    assert looked == [0, 2]
    assert [each.priority for each in behind] == [_DEFAULT, _FLEX, _DEFAULT, _FLEX]
    assert rows.order[:4].tolist() == [each.order for each in behind]


@pytest.mark.parametrize(("preemptions", "expected"), [(0, _FLEX), (1, _DEFAULT)])
def test_who_is_aborted_while_it_waits_has_overtaken_if_it_ever_ran(
    preemptions: int, expected: int
) -> None:
    with toy_engine(replace(_SETUP, most_overtaken=1)) as engine:
        for name, priority in (("flex", _FLEX), ("default", _DEFAULT)):
            engine.core.add_request(request(name, priority))
        flex, default = map(engine.scheduler.running.find, ("flex", "default"))
        assert flex is not None
        assert default is not None
        default.preemptions = preemptions
        engine.core.abort("default")
        engine.core.step()
        assert flex.priority == expected
