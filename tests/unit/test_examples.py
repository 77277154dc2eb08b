"""Properties that name their number of examples follow the profile all the same."""

from hypothesis import settings
from tests.support.examples import USUAL, scaled


def test_counts_are_those_named_by_default_and_grow_with_the_profile() -> None:
    assert settings.get_profile("ci").max_examples == USUAL
    assert scaled(6, settings.get_profile("ci")) == 6
    assert scaled(6, settings.get_profile("explore")) == 6 * 1000 // USUAL
    assert scaled(3, settings(max_examples=1)) == 1
