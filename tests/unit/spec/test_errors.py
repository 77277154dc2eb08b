"""What a user sees of an error is one line, whatever the names in it."""

import pytest

from tandem.spec.errors import ModelError


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("no 'ä→x' here; mend it", "no 'ä→x' here; mend it"),
        ("no 'a\nb\x1b[2J' here", "no 'a\\nb\\x1b[2J' here"),
        ("no '\ud800\u2028' here", "no '\\ud800\\u2028' here"),
    ],
)
def test_a_message_is_one_printable_line(message: str, shown: str) -> None:
    error = ModelError(message, param="model")
    assert error.message == str(error) == shown
