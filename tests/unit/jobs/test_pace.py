import pytest

from tandem.jobs.counts import Counts
from tandem.jobs.pace import Pace


def test_rates_are_those_of_late() -> None:
    pace = Pace(1000, Counts())
    for second in range(1, 101):  # a line a second
        status = pace.status(Counts(second, 0, 0, 10 * second, float(second)))
    assert (status.output_tokens_per_s, status.remaining_s) == (10, 900)
    counts = Counts(100, 0, 0, 1000, 100.0)
    for second in range(1, 101):  # then two, of which one fails
        counts = Counts(100 + second, second, 0, 1000 + 20 * second, 100.0 + second)
        status = pace.status(counts)
    assert status.output_tokens_per_s == pytest.approx(20)
    assert status.remaining_s == pytest.approx(350)


def test_a_resumed_job_counts_from_where_it_begins() -> None:
    pace = Pace(100, Counts(50, 0, 0, 5000, 500.0))
    assert pace.status(Counts(50, 0, 0, 5000, 500.0)).remaining_s is None
    assert pace.status(Counts(50, 0, 0, 5000, 501.0)).remaining_s is None
    status = pace.status(Counts(60, 0, 0, 6000, 510.0))
    assert (status.output_tokens_per_s, status.remaining_s) == (100, 40)
