"""Durations as flags take them."""

from hypothesis import given
from hypothesis import strategies as st

from tandem.spec.units import duration_to_allow, parse_duration_s


@given(st.floats(1e-6, 1e6))
def test_a_duration_to_allow_is_no_shorter_and_hardly_longer(seconds: float) -> None:
    allowed = parse_duration_s(duration_to_allow(seconds))
    assert seconds <= allowed <= seconds * 1.0101


def test_a_duration_to_allow_is_short() -> None:
    found = [duration_to_allow(seconds) for seconds in (0.03051, 0.0306, 1.0, 14.651, 0.9999)]
    assert found == ["30.6ms", "30.6ms", "1.00s", "14.7s", "1000ms"]
