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
            a space where a text begins, which is not where a prompt is continued.
    """

    def __init__(self, backend: Backend, context: Sequence[int] = ()) -> None:
        self._backend = backend
        text = backend.decode(list(context), skip_special_tokens=True)
        if text.endswith(_REPLACEMENT):
            # Half a character, which the prompt shows as it is and the output must not complete.
            context, text = (), ""
        self._token_ids = list(context)
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
