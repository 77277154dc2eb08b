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


def test_tokens_of_lines_that_run_count_as_they_come() -> None:
    pace = Pace(10, Counts())
    for second in range(1, 11):  # one long line, of which nothing is done
        status = pace.status(Counts(elapsed_s=float(second)), 5 * second)
    assert (status.output_tokens_per_s, status.remaining_s) == (5, None)
    status = pace.status(Counts(1, 0, 0, 50, 10.0))  # its tokens are not counted twice
    assert (status.output_tokens_per_s, status.remaining_s) == (5, 90)
    status = pace.status(Counts(1, 1, 0, 50, 11.0))  # a failed line's are given up
    assert status.output_tokens_per_s == pytest.approx(50 / 11)
    assert Pace(1, Counts()).status(Counts(elapsed_s=1.0), 0).output_tokens_per_s == 0


def test_what_is_left_is_known_where_no_line_was_finished_of_late() -> None:
    pace = Pace(10, Counts())
    pace.status(Counts(2, 0, 0, 200, 100.0))
    for second in range(101, 301):  # a token a second
        status = pace.status(Counts(2, 0, 0, 200, float(second)), second - 100)
    assert status.output_tokens_per_s == pytest.approx(1)
    assert status.remaining_s == pytest.approx(8 * 100 - 200)
    for second in range(301, 401):  # and none: by lines, of the whole run
        status = pace.status(Counts(2, 0, 0, 200, float(second)), 200)
    assert status.remaining_s == pytest.approx(8 * 400 / 2)


def test_lines_without_tokens_have_a_pace_too() -> None:
    pace = Pace(100, Counts())
    status = pace.status(Counts(0, 20, 0, 0, 10.0))
    assert (status.output_tokens_per_s, status.remaining_s) == (0, 40)


def test_what_is_left_of_a_resumed_job_is_known_once_tokens_come() -> None:
    pace = Pace(60, Counts(50, 0, 0, 5000, 500.0))
    assert pace.status(Counts(50, 0, 0, 5000, 501.0), 100).remaining_s == 9
