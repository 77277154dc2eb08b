"""The bytes of single tokens, put together, are those of their text."""

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.frontend.conftest import sentencepiece_backend
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from tandem.engine.frontend.token_bytes import TokenBytes
from tandem.engine.frontend.tokenizer import Tokenizer


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_bytes_of_a_byte_level_vocabulary_add_up(tokenizer: Tokenizer, text: str) -> None:
    token_ids = tokenizer.encode(text, add_special_tokens=False)
    assert b"".join(map(tokenizer.token_bytes, token_ids)) == text.encode()


def test_a_part_of_a_character_has_its_bytes_and_no_text(tokenizer: Tokenizer) -> None:
    token_ids = tokenizer.encode("🦜", add_special_tokens=False)
    assert len(token_ids) > 1
    assert b"".join(map(tokenizer.token_bytes, token_ids)) == "🦜".encode()
    assert "\ufffd" in tokenizer.token_text(token_ids[0])


def test_words_of_sentencepiece_keep_their_spaces() -> None:
    tokenizer = Tokenizer(sentencepiece_backend())
    assert [tokenizer.token_bytes(i) for i in (256, 0xF0, 256)] == [b" hello", b"\xf0", b" hello"]
    assert tokenizer.token_text(256) == " hello"


def test_special_and_unknown_tokens(tokenizer: Tokenizer) -> None:
    assert tokenizer.token_text(0) == "<|bos|>"
    assert tokenizer.token_bytes(99_999) == b""


def test_tokens_of_other_vocabularies_are_decoded() -> None:
    backend = Backend(models.WordLevel({"hi": 0, "\u2581hi": 1}, "hi"))
    assert [TokenBytes(backend).of(i) for i in (0, 1)] == [b"hi", "\u2581hi".encode()]
    backend.decoder = decoders.Metaspace()
    assert [TokenBytes(backend).of(i) for i in (0, 1)] == [b"hi", b" hi"]
