"""Cohorts that join before it is known whether their last joins happened."""

from collections import Counter
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.engines import TestEngine, toy_engine
from tests.support.script import run_all
from tests.support.setups import Setup
from tests.support.step_prices import round_prices
from tests.unit.scheduler.priced_view import LAYERS, SETUP, half_on_host

from tandem.cost.step_prices import StepPrices
from tandem.plan.program import LaneSlot, StepProgram
from tandem.runtime import exact
from tandem.scheduler.cohort import Cohort
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.row_set import RowSet
from tandem.scheduler.step_work import StepCounter
from tandem.scheduler.strategies.registry import make_strategy
from tandem.scheduler.strategies.rendezvous import Rendezvous, joining
from tandem.scheduler.strategies.rendezvous_ahead import RendezvousAhead
from tandem.scheduler.strategies.tempo import with_tempo
from tandem.scheduler.view import SchedulerView
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams


def cohort(stops: int, *, ahead: bool = True, number: int = 1, rows: int = 0) -> Cohort:
    members = cast(RowSet, range(rows))
    return Cohort(number, members, cast(LaneSlot, None), False, tuple(range(stops)), ahead)


def test_where_one_may_end_the_second_to_come_to_its_last_layer_waits_for_a_sweep() -> None:
    first, second, third = (cohort(3, number=number, rows=10 * number) for number in (1, 2, 3))
    for ending in (first, second):
        ending.submit(2)
    assert joining((first, second, third), one_ends=True) == ((1, 3), 10)
    assert joining((first, second, third), one_ends=False) == ((1, 2, 3), 30)
    first.submit(1)
    assert joining((first, second, third), one_ends=True) == ((2, 3), 20)


@given(st.integers(1, 12), st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=60))
def test_joins_happen_in_order_each_once(stops: int, script: list[tuple[int, bool]]) -> None:
    """Against a plain list of what is in flight: (attention, whether what it follows happened)."""
    made, begun, happened = cohort(stops), 1, []
    flight: list[int] = []
    for count, ready in script:
        count = min(count, stops - made.joined - made.undecided)
        if count and made.may_join:
            flight += range(made.attention, made.attention + count)
            made.submit(count)
        if flight:
            attention = flight.pop(0)
            joined = ready and attention <= begun
            before = made.ahead
            refused = made.decide(joined=joined)
            if joined:
                happened.append(attention)
                begun = attention + 1
            assert refused == (not joined and attention <= begun)
            assert made.ahead == (before and not refused)
    assert happened == list(range(1, made.joined + 1))
    assert made.undecided + made.doomed == len(flight)
    assert (made.cursor is None) == (made.joined + made.undecided == stops)


class Tempo:
    """Rendezvous, or with passes, whose cohorts join ahead, or not."""

    name, uses_host = "tempo", True

    def __init__(self, name: str, *, ahead: bool) -> None:
        self._inner, self._ahead = make_strategy(name), ahead

    def propose(self, view: SchedulerView, prices: StepPrices | None) -> StepProposal:
        return self._inner.propose(view, prices)._replace(starts_ahead=self._ahead)


def requests() -> list[EngineRequest]:
    """More than the device holds, so that cohorts cross its sweeps."""
    params = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)
    prompts = [tuple((3 * i + n) % 50 for i in range(n)) for n in (30, 28, 26, 25)]
    return [EngineRequest(str(i), prompt, params) for i, prompt in enumerate(prompts)]


MIXED = Setup(device_blocks=8, host_blocks=24, max_cohorts=2, executor="exact")
DEEP = 5


def sweeps_of_cohorts(engine: TestEngine, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """By cohort, the numbers of the sweeps that it takes part in; filled as the engine runs."""
    sweeps: dict[int, list[int]] = {}
    found: list[list[int]] = []
    submit, count = engine.executor.submit, Counter[str]()

    def spy(program: StepProgram) -> None:
        if program.lanes:
            count["sweeps"] += 1
        for cohort_id in {slot.cohort_id for slot in program.lanes} - {0}:
            if cohort_id not in sweeps:
                found.append(sweeps.setdefault(cohort_id, []))
            sweeps[cohort_id].append(count["sweeps"])
        submit(program)

    monkeypatch.setattr(engine.executor, "submit", spy)
    return found


@pytest.mark.parametrize("ahead", [True, False])
def test_a_cohort_gets_on_in_every_sweep(ahead: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "_REFUSE_JOIN", 0.0)
    setup = replace(MIXED, max_cohorts=1, strategy=Tempo("rendezvous", ahead=ahead))
    with toy_engine(setup, DEEP) as engine:
        found = sweeps_of_cohorts(engine, monkeypatch)
        run_all(engine.core, requests(), num_layers=DEEP)
    gaps = Counter(int(gap) for sweeps in found for gap in np.diff(sweeps[1:]))
    assert len(found) > 5
    assert (set(gaps) == {1}) == ahead


def test_cohorts_that_join_every_sweep_start_as_others_do() -> None:
    with half_on_host() as engine:
        view = engine.scheduler.view()
        others, ahead = (
            strategy.propose(view, None) for strategy in (Rendezvous(), RendezvousAhead())
        )
    assert [rows.tolist() for rows in ahead.cohort_starts] == [
        rows.tolist() for rows in others.cohort_starts
    ]
    assert ahead.cohort_starts
    assert (others.starts_ahead, ahead.starts_ahead) == (False, True)


@pytest.mark.parametrize("name", ["rendezvous", "asymmetric"])
@pytest.mark.parametrize("in_flight", [2, 3])
@pytest.mark.parametrize("refused", [0.3, 0.9])
def test_what_follows_a_refused_join_is_refused_and_no_token_changes(
    name: str, in_flight: int, refused: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    with toy_engine(Setup(), DEEP) as engine:
        expected = run_all(engine.core, requests(), num_layers=DEEP)
    monkeypatch.setattr(exact, "_REFUSE_JOIN", refused)
    doomed, decide = 0, Cohort.decide

    def spy(cohort: Cohort, *, joined: bool) -> bool:
        nonlocal doomed
        doomed += cohort.doomed > 0
        return decide(cohort, joined=joined)

    monkeypatch.setattr(Cohort, "decide", spy)
    for seed in range(4):
        setup = replace(
            MIXED,
            strategy=Tempo(name, ahead=True),
            executor_seed=seed,
            launch_ahead_steps=in_flight,
            interposition_budget=2,
        )
        with toy_engine(setup, DEEP) as engine:
            results = run_all(engine.core, requests(), num_layers=DEEP)
            engine.check_idle()
            assert engine.stats.cohort_joins > 0
        assert {k: r.token_ids for k, r in results.items()} == {
            k: r.token_ids for k, r in expected.items()
        }
    assert doomed > 0


@pytest.mark.parametrize(("host_key_s", "ahead"), [(0.04, True), (0.4, False)])
def test_joins_are_submitted_ahead_if_the_cpu_is_predicted_to_keep_up(
    host_key_s: float, ahead: bool
) -> None:
    """A sweep of four layers takes 4 s; a cohort attends to some 23 keys in one layer each."""
    with half_on_host() as engine:
        assert SETUP.max_cohort_rows == 1
        prices = round_prices(LAYERS, host_key_s=host_key_s)
        view = engine.scheduler.view()
        proposal = Rendezvous().propose(view, prices)
        assert len(proposal.cohort_starts) == 1
        assert not proposal.starts_ahead
        assert with_tempo(proposal, StepCounter(view, prices)).starts_ahead == ahead
