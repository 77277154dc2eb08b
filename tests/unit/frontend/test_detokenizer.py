"""Pieces of text add up to the decoded sequence and never break a character."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.frontend.conftest import sentencepiece_backend

from tandem.engine.frontend.detokenizer import IncrementalDetokenizer
from tandem.engine.frontend.tokenizer import Tokenizer

# Ids 0-6 are special, 7-262 single bytes, the rest merges.
IDS = st.lists(st.one_of(st.integers(0, 6), st.integers(7, 262), st.integers(7, 4095)), max_size=40)


def pieces(detokenizer: IncrementalDetokenizer, token_ids: list[int]) -> list[str]:
    return [*map(detokenizer.feed, token_ids), detokenizer.finish()]


@given(token_ids=IDS)
def test_pieces_add_up_to_the_decoded_sequence(tokenizer: Tokenizer, token_ids: list[int]) -> None:
    text = "".join(pieces(tokenizer.detokenizer(), token_ids))
    assert text.rstrip("\ufffd") == tokenizer.decode(token_ids).rstrip("\ufffd")
    assert tokenizer.decode(token_ids).startswith(text)


@given(text=st.text(max_size=30))
def test_valid_text_comes_back_in_whole_characters(tokenizer: Tokenizer, text: str) -> None:
    token_ids = list(tokenizer.encode(text, add_special_tokens=False))
    found = pieces(tokenizer.detokenizer(), token_ids)
    assert "".join(found).rstrip("\ufffd") == tokenizer.decode(token_ids).rstrip("\ufffd")
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in found)


def test_an_emoji_is_released_with_its_last_byte(tokenizer: Tokenizer) -> None:
    detokenizer = tokenizer.detokenizer()
    token_ids = tokenizer.encode("🦜", add_special_tokens=False)
    assert len(token_ids) > 1
    assert [*map(detokenizer.feed, token_ids)] == [""] * (len(token_ids) - 1) + ["🦜"]


def test_half_a_character_at_the_end_is_dropped(tokenizer: Tokenizer) -> None:
    token_ids = list(tokenizer.encode("ok 🦜", add_special_tokens=False))[:-1]
    assert "".join(pieces(tokenizer.detokenizer(), token_ids)) == "ok "


def test_ids_without_text_and_special_tokens_are_silent(tokenizer: Tokenizer) -> None:
    assert pieces(tokenizer.detokenizer(), [0, 3, 1, 99999]) == [""] * 5


WORDS = st.lists(st.one_of(st.just(" hello"), st.text(min_size=1, max_size=3)), max_size=8)


def sentencepiece_ids(words: list[str]) -> list[int]:
    return [i for word in words for i in ([256] if word == " hello" else word.encode())]


@given(words=WORDS)
def test_byte_fallback_of_sentencepiece_models(words: list[str]) -> None:
    detokenizer = IncrementalDetokenizer(sentencepiece_backend())
    text = "".join(pieces(detokenizer, sentencepiece_ids(words)))
    assert text.rstrip("\ufffd") == "".join(words).removeprefix(" ").rstrip("\ufffd")


@given(garbage=st.lists(st.integers(0, 255), max_size=12))
def test_bytes_that_are_no_text_do_not_silence_what_follows(garbage: list[int]) -> None:
    found = pieces(IncrementalDetokenizer(sentencepiece_backend()), [*garbage, 256, 256])
    assert "".join(found).endswith("hello hello")


@given(words=WORDS, data=st.data())
def test_a_text_goes_on_from_its_context(words: list[str], data: st.DataObject) -> None:
    backend, token_ids = sentencepiece_backend(), sentencepiece_ids(words)
    cut = data.draw(st.integers(0, len(token_ids)))
    before = backend.decode(token_ids[:cut])
    text = "".join(pieces(IncrementalDetokenizer(backend, token_ids[:cut]), token_ids[cut:]))
    if not before.endswith("\ufffd"):  # else half a character, which is no text to go on from
        assert (before + text).rstrip("\ufffd") == backend.decode(token_ids).rstrip("\ufffd")


@pytest.mark.parametrize("character", ["x", "é", "你", "🦜"])
@pytest.mark.parametrize("num_looked_at", range(4, 9))
def test_a_text_goes_on_from_characters_that_begin_before_its_context(
    character: str, num_looked_at: int
) -> None:
    context = list((character * 9).encode())[-num_looked_at:]
    found = pieces(IncrementalDetokenizer(sentencepiece_backend(), context), [256])
    assert "".join(found) == " hello"


def test_bytes_that_are_no_text_take_no_more_of_a_prompt_than_its_last_character() -> None:
    """The run that they are in reads as one U+FFFD for each byte, the prompt's included."""
    context = list(("🦜" * 2).encode())
    found = "".join(pieces(IncrementalDetokenizer(sentencepiece_backend(), context), [0x80, 256]))
    assert found.count("\ufffd") <= 4
    assert found.endswith(" hello")


def test_half_a_character_of_a_prompt_is_not_shown_again() -> None:
    parrot = list("🦜".encode())
    detokenizer = IncrementalDetokenizer(sentencepiece_backend(), [256, *parrot[:2]])
    assert "hello" not in "".join(pieces(detokenizer, [*parrot[2:], ord("a")]))


def test_a_space_is_dropped_only_where_a_text_begins() -> None:
    backend = sentencepiece_backend()
    assert pieces(IncrementalDetokenizer(backend), [256, 256]) == ["hello", " hello", ""]
    assert pieces(IncrementalDetokenizer(backend, [256]), [256, 256]) == [" hello", " hello", ""]
