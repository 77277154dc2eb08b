"""Lines that are too long for a terminal."""

import os
import sys

import pytest

from tandem.cli.folded import MOST_WIDTH, folded, print_folded, shown_width


def test_a_long_line_breaks_after_commas_and_keeps_its_words() -> None:
    line = "  ride-along: " + ", ".join(["some of the layers on the CPU"] * 12)
    found = list(folded([line]))
    assert len(found) > 1
    assert all(len(each) <= MOST_WIDTH for each in found)
    assert all(each.endswith(",") for each in found[:-1])
    assert all(each.startswith("      some") for each in found[1:])
    assert " ".join(each.strip() for each in found) == line.strip()


@pytest.mark.parametrize("width", [80, 100, MOST_WIDTH])
def test_prose_without_a_late_comma_breaks_between_words(width: int) -> None:
    line = "note: short, and then " + " ".join(["words of this note"] * 20)
    found = list(folded([line], width))
    assert all(width // 2 < len(each) <= width for each in found[:-1])
    assert " ".join(each.strip() for each in found) == line


def test_of_a_table_only_the_last_column_is_broken() -> None:
    row = f"  auto  215 tokens/s  586 ms per token  {'layers of it streamed ' * 6}".rstrip()
    first, *rest = folded([row], 80)
    assert first.startswith("  auto  215 tokens/s  586 ms per token  layers")
    assert [each.startswith("      ") and "  " not in each.strip() for each in rest] == [True] * 2
    columns = f"  {'8.25 ms':>12}" * 9
    assert list(folded([columns], 80)) == [columns]


@pytest.mark.parametrize(
    "line", ["", "short, and so whole", "x" * 300, "  tandem serve a " + "--flag 1 " * 40]
)
def test_what_is_short_to_be_copied_or_cannot_be_broken_stays(line: str) -> None:
    assert list(folded([line], 80)) == [line]


@pytest.mark.parametrize(("columns", "width"), [(40, 80), (100, 100), (400, MOST_WIDTH)])
def test_lines_are_as_wide_as_the_terminal_if_it_is_one(
    columns: int,
    width: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert shown_width() == MOST_WIDTH, "a pipe"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert shown_width() == width
    print_folded(["word " * 100])
    assert max(map(len, capsys.readouterr().out.split(os.linesep))) in range(width - 8, width + 1)
