"""The pool benchmark measures what it says, beside its bound."""

import pytest

from tandem.kernels import native

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tandem.bench.pool import PoolBench, full, quick, run_pool
from tandem.kernels import _native


def test_every_case_has_a_start_a_round_trip_and_a_bound() -> None:
    reported: list[str] = []
    rows = run_pool(PoolBench((1, 2), rounds=20), reported.append)
    assert len(reported) == 6
    assert len(rows) == 18
    for case in reported:
        start, trip, bare = (row for row in rows if row.case == case)
        assert start.bound == bare.value > 0
        assert trip.bound == 2 * bare.value
        assert 0 < start.value < trip.value
        assert trip.spread is not None
        assert trip.spread[0] <= trip.value <= trip.spread[1]


def test_full_measures_more_than_quick() -> None:
    assert quick().rounds < full().rounds
    assert set(quick().threads) <= set(full().threads)


def test_a_probe_needs_rounds() -> None:
    assert len(_native.spin_round_trips(3)) == 3
    with pytest.raises(ValueError, match="at least one round"):
        _native.spin_round_trips(0)
