"""Factors that follow what is observed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.step_prices import round_prices

from tandem.cost.calibration import Calibrator, TermFactors, scaled
from tandem.cost.page_price import CopyTimes
from tandem.cost.prediction_ratios import RATIO_BOUNDS
from tandem.cost.step_prices import StepWork, TermTimes, TierWork

PRICES = round_prices(4, layer_s=1.0, device_key_s=0.01, host_key_s=0.1, block_s=0.5)
WORK = StepWork(8, 0, 8, TierWork(4, 100, 100), TierWork(4, 100, 100))
RATIOS = st.floats(0.2, 5.0)


@given(linear=RATIOS, attention=RATIOS, host=RATIOS)
def test_the_list_comes_to_say_what_is_measured(
    linear: float, attention: float, host: float
) -> None:
    calibrator, said = Calibrator(PRICES), PRICES.terms(WORK)
    truth = TermTimes(linear * said.linear_s, attention * said.attention_s, host * said.host_s)
    for _ in range(100):
        calibrator.observe(said, truth)
    found = calibrator.prices.terms(WORK)
    for now_s, true_s in zip(found, truth, strict=True):
        assert abs(now_s / true_s - 1) < 0.03


@given(into=RATIOS, out=RATIOS)
def test_copies_in_either_direction_come_to_take_what_is_measured(into: float, out: float) -> None:
    pages = replace(PRICES.pages, start_in_s=0.1, start_out_s=0.2)
    calibrator = Calibrator(replace(PRICES, pages=pages))
    said = CopyTimes(pages.in_s(3), pages.out_s(5))
    for _ in range(60):
        calibrator.observe_copies(said, CopyTimes(into * said.in_s, out * said.out_s))
    found = calibrator.prices.pages
    assert found.in_s(1) == pytest.approx(into * pages.in_s(1), rel=0.03)
    assert found.out_s(2) == pytest.approx(out * pages.out_s(2), rel=0.03)
    assert sum(calibrator.ratios().counts) == 0  # they are no steps


def test_a_program_that_copies_one_way_says_nothing_of_the_other() -> None:
    calibrator = Calibrator(PRICES)
    calibrator.observe_copies(CopyTimes(in_s=1.0), CopyTimes(in_s=2.0))
    assert calibrator.factors.copies_in > 1.2
    assert replace(calibrator.factors, copies_in=1.0) == TermFactors()


def test_measured_times_are_counted_by_how_they_compare_with_corrected_ones() -> None:
    calibrator, said = Calibrator(PRICES), PRICES.terms(WORK)
    slow = said._replace(linear_s=2 * said.linear_s, attention_s=2 * said.attention_s, host_s=0.0)
    calibrator.observe(said, slow)
    first = calibrator.ratios()
    assert first.counts[RATIO_BOUNDS.index(2.0)] == sum(first.counts) == 1
    assert first.total == pytest.approx(2.0)
    assert first.linear == calibrator.factors.linear > 1.05
    for _ in range(100):
        calibrator.observe(said, slow)
    assert calibrator.ratios().counts[RATIO_BOUNDS.index(1.05)] > 50
    calibrator.observe(TermTimes(), slow)
    assert sum(calibrator.ratios().counts) == 101


@given(said=st.floats(0.0, 10.0), measured=st.floats(0.0, 1e9))
def test_no_observation_moves_a_factor_far(said: float, measured: float) -> None:
    calibrator = Calibrator(PRICES)
    calibrator.observe(TermTimes(said, said, said), TermTimes(measured, measured, measured))
    for factor in (calibrator.factors.linear, calibrator.factors.attention):
        assert 0.8 < factor < 1.2
    assert 0.49 < calibrator.factors.host < 2.01


def test_factors_are_bounded_and_terms_that_are_not_there_say_nothing() -> None:
    calibrator, said = Calibrator(PRICES), PRICES.terms(WORK)
    for _ in range(200):
        calibrator.observe(TermTimes(said.linear_s), TermTimes(1e9 * said.linear_s, 1.0, 1.0))
    assert calibrator.factors == TermFactors(linear=8.0)


def test_prices_stay_the_same_object_until_something_is_noticed() -> None:
    calibrator, said = Calibrator(PRICES), PRICES.terms(WORK)
    calibrator.observe(said, said._replace(host_s=1.01 * said.host_s))
    assert calibrator.prices is PRICES
    calibrator.observe(said, said._replace(host_s=1.2 * said.host_s))
    assert calibrator.prices is not PRICES


def test_terms_are_those_of_the_forecast() -> None:
    """One of the accelerator's attention and the CPU's hides the other."""
    terms = PRICES.terms(WORK)
    longest_s = terms.linear_s + max(terms.attention_s, terms.host_s)
    assert abs(PRICES.forecast(WORK).time_s - longest_s) < 1e-9
    slower = scaled(PRICES, TermFactors(2.0, 3.0, 4.0)).terms(WORK)
    assert slower == TermTimes(2 * terms.linear_s, 3 * terms.attention_s, 4 * terms.host_s)
