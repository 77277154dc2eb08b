"""The bytes that single tokens stand for."""

import json
import re
from collections.abc import Iterator
from typing import Any

from tokenizers import Tokenizer as Backend

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


class TokenBytes:
    """What each token adds to a text, also where that is a part of a character.

    Decoding a token by itself tells neither: a part of a character reads as U+FFFD, and the
    decoders of SentencePiece's models drop the space where a text begins. So it is read from
    vocabularies of bytes (GPT-2's alphabet) and from SentencePiece's; tokens of others are decoded.

    Args:
        backend: the library's tokenizer.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        steps = [] if backend.decoder is None else list(_steps(backend.decoder))
        kinds = {step["type"] for step in steps}
        self._alphabet = _gpt2_alphabet() if "ByteLevel" in kinds else {}
        self._falls_back = "ByteFallback" in kinds
        self._spaces = _spaces(steps)
        self._added = {
            token_id: token.content
            for token_id, token in backend.get_added_tokens_decoder().items()
        }

    def of(self, token_id: int) -> bytes:
        """The bytes of a token; none of an id that has no text."""
        if token_id in self._added:
            return self._added[token_id].encode()
        token = self._backend.id_to_token(token_id)
        if token is None:
            return b""
        if self._alphabet and self._alphabet.keys() >= set(token):
            return bytes(self._alphabet[character] for character in token)
        byte = _BYTE_TOKEN.fullmatch(token) if self._falls_back else None
        if byte:
            return bytes([int(byte[1], 16)])
        if self._spaces:
            return token.replace(self._spaces, " ").encode()
        return self._backend.decode([token_id], skip_special_tokens=False).encode()


def _steps(decoder: Any) -> Iterator[dict[str, Any]]:
    """A decoder's steps, as its file has them."""
    told = json.loads(decoder.__getstate__())
    yield from told["decoders"] if told["type"] == "Sequence" else [told]


def _spaces(steps: list[dict[str, Any]]) -> str:
    """The character that stands for spaces; empty: none does."""
    for step in steps:
        if step["type"] == "Metaspace":
            return step["replacement"]
        if step["type"] == "Replace" and step["content"] == " ":
            return step["pattern"].get("String", "")
    return ""


def _gpt2_alphabet() -> dict[str, int]:
    """Bytes by the characters that stand for them: those that print for themselves, the others for
    the characters from U+0100 on, in order (`bytes_to_unicode` of GPT-2's encoder).
    """
    printed = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printed]
    return {chr(byte): byte for byte in printed} | {
        chr(0x100 + place): byte for place, byte in enumerate(others)
    }
