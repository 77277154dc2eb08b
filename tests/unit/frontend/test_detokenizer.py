"""Pieces of text add up to the decoded sequence and never break a character."""

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

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


def sentencepiece_backend() -> Backend:
    """As Llama 2's: words, and single bytes for what is in no word."""
    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"▁hello": 256, "<unk>": 257}
    backend = Backend(models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    return backend


@given(words=st.lists(st.one_of(st.just(" hello"), st.text(min_size=1, max_size=3)), max_size=8))
def test_byte_fallback_of_sentencepiece_models(words: list[str]) -> None:
    token_ids = [i for w in words for i in ([256] if w == " hello" else w.encode())]
    text = "".join(pieces(IncrementalDetokenizer(sentencepiece_backend()), token_ids))
    assert text.rstrip("\ufffd") == "".join(words).removeprefix(" ").rstrip("\ufffd")


@given(garbage=st.lists(st.integers(0, 255), max_size=12))
def test_bytes_that_are_no_text_do_not_silence_what_follows(garbage: list[int]) -> None:
    found = pieces(IncrementalDetokenizer(sentencepiece_backend()), [*garbage, 256, 256])
    assert "".join(found).endswith("hello hello")
