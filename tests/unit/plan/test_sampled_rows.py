"""How many rows a sweep samples at most."""

import pytest

from tandem.plan.strategy_names import most_sampled_rows


@pytest.mark.parametrize("strategy", ["rendezvous", "rendezvous-ahead"])
def test_those_on_the_accelerator_a_cohort_and_a_prompt(strategy: str) -> None:
    assert most_sampled_rows(strategy, rows=278, device_rows=102, cohort_rows=88) == 191


def test_no_more_than_run() -> None:
    assert most_sampled_rows("rendezvous", rows=10, device_rows=8, cohort_rows=5) == 10


@pytest.mark.parametrize("strategy", ["auto", "ride-along", "asymmetric", "symmetric", "neo"])
def test_all_where_rows_on_the_host_may_be_elsewhere_than_in_one_cohort(strategy: str) -> None:
    assert most_sampled_rows(strategy, rows=278, device_rows=102, cohort_rows=88) == 278


def test_all_where_any_number_may_lie_on_the_accelerator() -> None:
    assert most_sampled_rows("rendezvous", rows=278, device_rows=0, cohort_rows=88) == 278
