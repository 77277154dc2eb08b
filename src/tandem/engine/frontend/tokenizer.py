"""A model's tokenizer and chat template."""

from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer as Backend

from tandem.engine.frontend.chat_template import ChatTemplate, Message
from tandem.engine.frontend.detokenizer import IncrementalDetokenizer
from tandem.spec.errors import RequestError


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

    def encode(self, text: str, add_special_tokens: bool = True) -> tuple[int, ...]:
        """Token ids of `text`, with what the model wants at its beginning and end.

        Raises:
            RequestError: `text` is not valid Unicode.
        """
        check_unicode(text)
        return tuple(self._backend.encode(text, add_special_tokens=add_special_tokens).ids)

    def encode_chat(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[int, ...]:
        """Token ids of a conversation, up to where the assistant's answer begins.

        `options` are further variables of the template, such as `enable_thinking`.

        Raises:
            RequestError: the model has no chat template, or it refuses the conversation.
        """
        if self._chat_template is None:
            raise RequestError(
                "this model has no chat template; use completions, or start with --chat-template",
                param="messages",
            )
        text = self._chat_template.render(messages, add_generation_prompt, options or {})
        return self.encode(text, add_special_tokens=False)

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of a whole sequence; ids without a text are skipped."""
        return self._backend.decode(list(token_ids), skip_special_tokens=skip_special_tokens)

    def token_text(self, token_id: int) -> str:
        """Text of one token by itself, special tokens included; half characters as U+FFFD."""
        return self._backend.decode([token_id], skip_special_tokens=False)

    def detokenizer(self) -> IncrementalDetokenizer:
        """A new incremental decoder for one sequence."""
        return IncrementalDetokenizer(self._backend)


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
