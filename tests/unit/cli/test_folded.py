"""Lines that are too long for a terminal."""

import pytest

from tandem.cli.folded import MOST_WIDTH, folded


def test_a_long_line_breaks_after_commas_and_keeps_its_words() -> None:
    line = "  ride-along: " + ", ".join(["some of the layers on the CPU"] * 12)
    found = list(folded([line]))
    assert len(found) > 1
    assert all(len(each) <= MOST_WIDTH for each in found)
    assert all(each.endswith(",") for each in found[:-1])
    assert all(each.startswith("      some") for each in found[1:])
    assert " ".join(each.strip() for each in found) == line.strip()


@pytest.mark.parametrize("line", ["", "short, and so whole", "x" * 300, "x" * 300 + ", y"])
def test_what_is_short_or_cannot_be_broken_stays(line: str) -> None:
    assert list(folded([line])) == [line]
