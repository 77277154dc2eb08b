"""What steps are predicted to take: by hand, and against the same programs in virtual time."""

from dataclasses import replace

import pytest
from tests.support.planned_option import option_of
from tests.support.step_prices import round_prices
from tests.unit.simulator.setups import Case, planned

from tandem.cost.step_prices import CohortWork, StepWork, TierWork
from tandem.planner.fluid.schedule import Schedules
from tandem.planner.footprint import Footprint
from tandem.planner.load import LaneLoad, TierLoad
from tandem.planner.sweep_load import SweepLoad
from tandem.planner.sweeps import Sweeps
from tandem.simulator.build import prices_of

NOTHING = TierWork()


def decodes(rows: int, keys: float) -> TierWork:
    return TierWork(rows, keys, keys)


def alone(rows: int, keys: float = 0.0) -> StepWork:
    return StepWork(rows, 0, rows, decodes(rows, keys), NOTHING)


def test_a_sweep_alone_is_its_stages_and_its_attention() -> None:
    prices = round_prices(10, layer_s=1.0, token_s=0.1, device_key_s=0.01)
    found = prices.forecast(alone(5, keys=200))
    assert found.time_s == pytest.approx(10 * (1.0 + 4 * 0.1 + 2.0))
    assert (found.decoded, found.attended_s) == (5, 0.0)


def test_host_rows_that_ride_cost_what_the_accelerator_does_not_hide() -> None:
    prices = round_prices(10, device_key_s=0.01, host_key_s=0.1, link_s=0.5)
    work = StepWork(6, 0, 6, decodes(5, 200), decodes(1, 10))
    assert prices.forecast(work).time_s == pytest.approx(10 * (1.0 + 2.0))  # 0.5 + 1 are hidden
    slow = work._replace(host=decodes(1, 40))
    assert prices.forecast(slow).time_s == pytest.approx(10 * (1.0 + 0.5 + 4.0))
    assert prices.forecast(slow).attended_s == pytest.approx(40)


def test_a_cohort_costs_the_stages_that_it_shares_and_brings_a_layer_of_its_tokens() -> None:
    prices = round_prices(10, token_s=0.1, host_key_s=0.01)
    cohort = CohortWork(20, 500, visits=0.5, tokens=0.05)
    found = prices.forecast(alone(5)._replace(cohorts=(cohort,)))
    assert found.time_s == pytest.approx(10 * 1.4 + 0.5 * 20 * 0.1)
    assert found.decoded == pytest.approx(5 + 20 * 0.05)
    assert found.attended_s == pytest.approx(0.5 * 5.0)


def test_passes_cost_whole_stages() -> None:
    prices = round_prices(10, token_s=0.1)
    cohort = CohortWork(20, 0, visits=5.0, passes=4.0, tokens=0.25)
    found = prices.forecast(alone(5)._replace(cohorts=(cohort,)))
    assert found.time_s == pytest.approx(10 * 1.4 + 4 * 2.9 + 1 * 2.0)
    assert found.decoded == pytest.approx(5 + 20 * 0.25)


def test_a_host_that_is_late_holds_cohorts_up_and_the_sweep_no_longer_than_it_may_wait() -> None:
    prices = round_prices(10, host_key_s=0.1, wait_s=2.0)
    cohort = CohortWork(20, 1000, visits=0.5, tokens=0.05)  # 50 s in each 10 s
    found = prices.forecast(alone(5)._replace(cohorts=(cohort,)))
    assert found.time_s == pytest.approx(12.0)
    assert found.decoded == pytest.approx(5 + 20 * 0.05 * 12 / 50)
    assert found.attended_s == pytest.approx(12.0)


def test_rows_that_ride_wait_for_a_cohort_that_stands_before_them() -> None:
    prices = round_prices(10, host_key_s=0.1, wait_s=2.0)
    riding = StepWork(6, 0, 6, decodes(5, 0), decodes(1, 10))
    beside = riding._replace(cohorts=(CohortWork(20, 100, visits=0.5),))
    assert prices.forecast(beside).time_s == pytest.approx(10 * 2.0 + 5.0)


# --- against the planner's virtual time -----------------------------------------------------------

CONTEXT = 400
LOADS = {
    "accelerator alone": (24, 0, 0, 0),
    "with a prompt": (24, 0, 0, 512),
    "riding, hidden": (24, 1, 0, 0),
    "riding, in the way": (24, 12, 0, 0),
    "riding only": (0, 12, 0, 0),
    "cohort": (24, 0, 12, 0),
}
"""Rows that decode on the accelerator, that ride along, of a cohort, and tokens of a prompt."""


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_it_agrees_with_virtual_time(load: tuple[int, int, int, int]) -> None:
    device, riding, members, prompt = load
    plan = planned(Case("ride-along", 4, 4))
    plan = replace(plan, plan=replace(plan.plan, strategy="auto", max_num_batched_tokens=2048))
    prices = prices_of(plan)
    assert prices is not None
    main = LaneLoad(TierLoad(device, CONTEXT, prompt), TierLoad(riding, CONTEXT), device + riding)
    cohort = LaneLoad(host=TierLoad(members, CONTEXT)) if members else None
    question = plan.question
    sweeps = Sweeps(question, Footprint(question), Schedules.of_model(question.model))
    expected_s = sweeps.time(option_of(plan).candidate.elsewhere, SweepLoad(main, cohort)).period_s

    chunk = TierWork(prompt, prompt, prompt * (prompt + 1) / 2)
    keys = device * (CONTEXT + 1.0)
    work = StepWork(
        device + riding,
        prompt,
        device + riding,
        TierWork(device + chunk.queries, keys + chunk.keys, keys + chunk.pairs),
        decodes(riding, riding * (CONTEXT + 1.0)) if riding else NOTHING,
        (CohortWork(members, members * (CONTEXT + 1.0), visits=1.0),) if members else (),
    )
    assert prices.forecast(work).time_s == pytest.approx(expected_s, rel=0.1)
