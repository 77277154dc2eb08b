"""A model's tokenizer and chat template."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer as Backend

from tandem.engine.frontend.chat_template import ChatTemplate, Message
from tandem.engine.frontend.detokenizer import IncrementalDetokenizer
from tandem.engine.frontend.token_bytes import TokenBytes
from tandem.spec.errors import ContextLengthError, RequestError

# Bytes that Unicode's composition can turn into one: three Hangul letters become one syllable.
_COMPOSITION = 3


class Tokenizer:
    """Text to tokens and back. Safe to use from several threads.

    Args:
        backend: the library's tokenizer, without truncation and padding.
        chat_template: None if the model has none.
    """

    def __init__(self, backend: Backend, chat_template: ChatTemplate | None = None) -> None:
        self._backend = backend
        self._chat_template = chat_template

    @property
    def vocab_size(self) -> int:
        """Number of tokens that have a text; a model may have more."""
        return self._backend.get_vocab_size()

    @functools.cached_property
    def max_token_bytes(self) -> int:
        """Most bytes of text that one token can stand for.

        Assumes that every byte of text gets into some token, as byte-level vocabularies and those
        that fall back to bytes have it, and that a normalizer composes characters at most.
        """
        longest = max(len(token.encode("utf-8")) for token in self._backend.get_vocab())
        return longest if self._backend.normalizer is None else longest * _COMPOSITION

    def encode(
        self, text: str, add_special_tokens: bool = True, max_tokens: int | None = None
    ) -> tuple[int, ...]:
        """Token ids of `text`, with what the model wants at its beginning and end.

        Args:
            max_tokens: refuse text that is bound to have more, before any work is spent on it;
                what may have as many is tokenized, and can then still have more.

        Raises:
            RequestError: `text` is not valid Unicode.
            ContextLengthError: `text` is beyond `max_tokens` by its size alone.
        """
        check_unicode(text)
        if max_tokens is not None and len(text) > max_tokens:
            self._check_size(text, max_tokens)
        # Not `encode`, which holds the interpreter lock all along and so stalls every thread.
        (encoding,) = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return tuple(encoding.ids)

    def _check_size(self, text: str, max_tokens: int) -> None:
        size, limit = len(text.encode("utf-8")), max_tokens * self.max_token_bytes
        if size > limit:
            raise ContextLengthError(
                f"the prompt has {size} bytes, but the {max_tokens} tokens that a request may have "
                f"here hold at most {limit}; shorten it",
                param="prompt",
            )

    def encode_chat(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = True,
        options: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
    ) -> tuple[int, ...]:
        """Token ids of a conversation, up to where the assistant's answer begins.

        Args:
            options: further variables of the template, such as `enable_thinking`.
            max_tokens: as for `encode`.

        Raises:
            RequestError: the model has no chat template, or it refuses the conversation.
            ContextLengthError: the conversation is beyond `max_tokens` by its size alone.
        """
        if self._chat_template is None:
            raise RequestError(
                "this model has no chat template; use completions, or start with --chat-template",
                param="messages",
            )
        text = self._chat_template.render(messages, add_generation_prompt, options or {})
        return self.encode(text, add_special_tokens=False, max_tokens=max_tokens)

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of a whole sequence; ids without a text are skipped."""
        # As a batch of one, which releases the interpreter lock.
        (text,) = self._backend.decode_batch(
            [list(token_ids)], skip_special_tokens=skip_special_tokens
        )
        return text

    def token_text(self, token_id: int) -> str:
        """Text that one token adds, special tokens included; half characters as U+FFFD."""
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """What one token adds to a text, half characters included; nothing for unknown ids."""
        return self._token_bytes.of(token_id)

    @functools.cached_property
    def _token_bytes(self) -> TokenBytes:
        return TokenBytes(self._backend)

    def detokenizer(self, context: Sequence[int] = ()) -> IncrementalDetokenizer:
        """A new incremental decoder for one sequence, which goes on from the tokens `context`."""
        return IncrementalDetokenizer(self._backend, context)


def check_unicode(text: str) -> None:
    """Refuse strings that UTF-8 cannot express; JSON's escapes can smuggle them in.

    Raises:
        RequestError: there is an unpaired surrogate.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError(
            f"the text is not valid Unicode: unpaired surrogate at character {error.start}; "
            "send UTF-8",
            param="prompt",
        ) from None
