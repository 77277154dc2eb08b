"""Tokens to text, piece by piece."""

from collections.abc import Sequence

from tokenizers import Tokenizer as Backend
from tokenizers.decoders import DecodeStream

_REPLACEMENT = "\ufffd"


class IncrementalDetokenizer:
    """Turns one sequence's tokens into text without ever releasing half a character.

    Special tokens have no text. The pieces together are the decoded sequence, except that an
    incomplete character at its very end is dropped.

    Args:
        context: tokens that the sequence goes on from. The decoders of SentencePiece's models drop
            a space where a text begins, which is not where a prompt is continued. Of them, as few
            of the last as have a text are looked at.
    """

    def __init__(self, backend: Backend, context: Sequence[int] = ()) -> None:
        self._backend = backend
        self._token_ids, text = _last_characters(backend, context)
        self._released = len(text)
        self._stream: DecodeStream | None = DecodeStream(self._token_ids, skip_special_tokens=True)

    def feed(self, token_id: int) -> str:
        """The text that `token_id` completes; often empty."""
        self._token_ids.append(token_id)
        piece = self._step(token_id)
        self._released += len(piece)
        return piece

    def finish(self) -> str:
        """The rest of the text, now that no token follows."""
        return self._unreleased()

    def _step(self, token_id: int) -> str:
        if self._stream is not None:
            try:
                return self._stream.step(self._backend, token_id) or ""
            except Exception:  # noqa: BLE001 (the library raises no narrower class)
                # It gives up where bytes that are no UTF-8 change how earlier text reads. From
                # here on everything is decoded every time, which is slower and always right.
                self._stream = None
        return self._unreleased()

    def _unreleased(self) -> str:
        text = self._backend.decode(self._token_ids, skip_special_tokens=True)
        return text[self._released :].rstrip(_REPLACEMENT)


def _last_characters(backend: Backend, token_ids: Sequence[int]) -> tuple[list[int], str]:
    """The last tokens that have a text of whole characters, and that text.

    No more than these: where a run of single bytes is no UTF-8, each of its bytes reads as U+FFFD,
    those of whole characters in it, too. None if they end in half a character, which the prompt
    shows as it is and the output must not complete.
    """
    for start in range(len(token_ids) - 1, -1, -1):
        last = list(token_ids[start:])
        text = backend.decode(last, skip_special_tokens=True)
        if text and not text.endswith(_REPLACEMENT):
            return last, text
    return [], ""
