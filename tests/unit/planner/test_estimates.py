"""Of all candidates, those that promise enough: in the order in which they are listed."""

from math import inf

import pytest

from tandem.planner.candidate import Candidate
from tandem.planner.search.kinds import Estimate, Estimates, Kind

KIND: Kind = ("gpu-only", 0, False, None, False, False, False, False)
PROMISES = [3.0, inf, 1.0, 3.0, 2.0, 0.0, 7.5]


@pytest.mark.parametrize("least", [-1.0, 0.0, 1.0, 1.5, 3.0, 7.5, inf])
def test_what_promises_more_is_found_in_order(least: float) -> None:
    every = [
        Estimate(Candidate("gpu-only", 0, rows, 0), KIND, most_per_s, lends=False)
        for rows, most_per_s in enumerate(PROMISES)
    ]
    expected = [each for each in every if each.most_per_s > least]
    assert Estimates.of(every).above(least) == expected
