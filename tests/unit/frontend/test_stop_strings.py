"""Stop strings are found wherever the pieces of text are cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.engine.frontend.stop_strings import StopMatch, StopMatcher

# Few letters, so that stop strings occur, overlap and nearly occur.
TEXT = st.text("ab\n", max_size=30)
STOPS = st.lists(st.text("ab\n", min_size=1, max_size=5), max_size=4).map(tuple)


def run(stops: tuple[str, ...], pieces: list[str], include: bool = False) -> tuple[str, str | None]:
    matcher = StopMatcher(stops, include)
    released = ""
    for piece in pieces:
        result = matcher.feed(piece)
        if isinstance(result, StopMatch):
            return released + result.text, result.stop
        released += result
    return released + matcher.flush(), None


def expected(stops: tuple[str, ...], text: str, include: bool) -> tuple[str, str | None]:
    """By definition: look at every beginning of the text in turn."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            stop = max(found, key=len)
            return text[: end if include else end - len(stop)], stop
    return text, None


@st.composite
def cut_texts(draw: st.DrawFn) -> list[str]:
    text = draw(TEXT)
    cuts = draw(st.lists(st.integers(0, len(text)), max_size=10))
    return [text[a:b] for a, b in pairwise([0, *sorted(cuts), len(text)])]


@given(stops=STOPS, pieces=cut_texts(), include=st.booleans())
def test_the_text_ends_at_the_first_stop_however_it_is_cut(
    stops: tuple[str, ...], pieces: list[str], include: bool
) -> None:
    assert run(stops, pieces, include) == expected(stops, "".join(pieces), include)


@given(stops=STOPS, pieces=cut_texts())
def test_text_is_held_back_only_while_it_may_become_a_stop(
    stops: tuple[str, ...], pieces: list[str]
) -> None:
    matcher, fed, released = StopMatcher(stops), "", ""
    for piece in pieces:
        result = matcher.feed(piece)
        if isinstance(result, StopMatch):
            return
        fed, released = fed + piece, released + result
        held = fed[len(released) :]
        assert fed == released + held
        assert not held or any(stop.startswith(held) for stop in stops)


@pytest.mark.parametrize(
    ("pieces", "text"),
    [(["He", "llo E", "N", "D."], "Hello "), (["Hello EN", "d"], "Hello ENd"), (["END"], "")],
)
def test_examples(pieces: list[str], text: str) -> None:
    assert run(("END",), pieces)[0] == text


def test_a_stop_that_ends_while_disarmed_does_not_count_but_one_that_ends_later_does() -> None:
    matcher = StopMatcher(("aa",))
    assert matcher.feed("xaa", armed=False) == "xa"
    assert matcher.feed("a") == StopMatch("", "aa")
