"""How many examples a property is tried with, where one takes long."""

from hypothesis import settings

USUAL = 50
"""Of the profile that tests run with by default, and of the counts that properties name."""


def scaled(count: int, profile: settings | None = None) -> int:
    """`count` with the default profile, and as many times more as another one asks for.

    Args:
        profile: None: the one that is loaded.
    """
    asked = (profile or settings()).max_examples
    return max(1, count * asked // USUAL)
