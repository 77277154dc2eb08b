"""From what callers give as prompts to token ids; needs no engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tandem.engine.frontend.chat_template import Message
from tandem.engine.frontend.tokenizer import Tokenizer
from tandem.spec.errors import RequestError
from tandem.spec.forms import FormError, in_form, whole_number, whole_numbers
from tandem.spec.sampling import SamplingParams

MAX_SAMPLES = 128

PromptInput = str | Sequence[int]

# Enough for a whole character, of up to four tokens, and special tokens behind it.
_TEXT_CONTEXT = 8


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt that has been checked.

    Attributes:
        token_ids: at least one.
        text: what it was made from, None if token ids were given.
        is_conversation: what follows is an answer, a text of its own.
    """

    token_ids: tuple[int, ...]
    text: str | None = None
    is_conversation: bool = False

    @property
    def text_context(self) -> tuple[int, ...]:
        """Tokens that the text of the output goes on from; none if it begins one."""
        return () if self.is_conversation else self.token_ids[-_TEXT_CONTEXT:]


class PromptReader:
    """Checks and tokenizes; may be used from several threads.

    Args:
        tokenizer: None if the model has none; prompts must then be token ids.
        vocab_size: token ids lie below it.
        max_model_len: most tokens of prompt and output together.
    """

    def __init__(self, tokenizer: Tokenizer | None, vocab_size: int, max_model_len: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self.max_model_len = max_model_len

    @property
    def has_tokenizer(self) -> bool:
        """True if text can go in and come out."""
        return self._tokenizer is not None

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer.

        Raises:
            RequestError: it has none.
        """
        if self._tokenizer is None:
            raise RequestError(
                "this model has no tokenizer; give prompts as token ids", param="prompt"
            )
        return self._tokenizer

    def prompt(self, given: PromptInput, add_special_tokens: bool = True) -> Prompt:
        """A text or token ids, checked.

        Raises:
            RequestError: it is neither, or as `text_prompt` and `token_prompt` say.
        """
        if isinstance(given, str):
            return self.text_prompt(given, add_special_tokens)
        return self.token_prompt(given)

    def text_prompt(self, text: str, add_special_tokens: bool = True) -> Prompt:
        """Tokenize a prompt.

        Raises:
            RequestError: it is empty or not valid Unicode.
            ContextLengthError: it is so long that it is not even tokenized.
        """
        if not text:
            raise RequestError("the prompt is empty; give at least one character", param="prompt")
        token_ids = self.tokenizer.encode(text, add_special_tokens, self.max_model_len)
        return self._checked(token_ids, text)

    def token_prompt(self, token_ids: Sequence[int]) -> Prompt:
        """Check a prompt of token ids; any sequence of integers will do.

        Raises:
            RequestError: it is something else, it is empty, or an id lies outside the vocabulary.
        """
        return self._checked(in_form(token_ids, _token_ids, "prompt", RequestError))

    def chat_prompt(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> Prompt:
        """Render and tokenize a conversation; `options` are further variables of the template.

        Raises:
            RequestError: there are no messages, one has no text, or the model's template refuses
                them.
            ContextLengthError: they are so long that they are not even tokenized.
        """
        if not messages:
            raise RequestError("there are no messages; send at least one", param="messages")
        for index, message in enumerate(messages):
            _check_message(message, f"messages[{index}]")
        token_ids = self.tokenizer.encode_chat(
            messages, add_generation_prompt, options, self.max_model_len
        )
        return self._checked(token_ids, is_conversation=True)

    def with_limit(self, sampling: SamplingParams, prompt: Prompt, default: int) -> SamplingParams:
        """`sampling`; if it names no `max_tokens`, with the default or what the context leaves."""
        if sampling.max_tokens is not None:
            return sampling
        room = self.max_model_len - len(prompt.token_ids)
        return replace(sampling, max_tokens=max(1, sampling.min_tokens, min(default, room)))

    def check_sampling(self, sampling: SamplingParams) -> None:
        """Refuse parameters that this model cannot follow.

        Raises:
            RequestError: a token id outside the vocabulary, or a stop string without a tokenizer.
        """
        self.check_token_ids(sampling.stop_token_ids, "stop_token_ids")
        self.check_token_ids(tuple(token for token, _ in sampling.logit_bias), "logit_bias")
        if sampling.stop and not self.has_tokenizer:
            raise RequestError(
                "this model has no tokenizer, so no stop string can be found; use stop_token_ids",
                param="stop",
            )

    def check_token_ids(self, token_ids: Sequence[int], param: str) -> None:
        """Refuse ids that the model does not know.

        Raises:
            RequestError: of `param`; one lies outside the vocabulary.
        """
        for token_id in (min(token_ids), max(token_ids)) if token_ids else ():
            if not 0 <= token_id < self._vocab_size:
                raise RequestError(
                    f"token id {token_id} is outside the model's vocabulary "
                    f"(0 to {self._vocab_size - 1})",
                    param=param,
                )

    def _checked(
        self, token_ids: tuple[int, ...], text: str | None = None, is_conversation: bool = False
    ) -> Prompt:
        if not token_ids:
            raise RequestError("the prompt is empty; give at least one token", param="prompt")
        self.check_token_ids(token_ids, "prompt")
        return Prompt(token_ids, text, is_conversation)


def check_samples(num_samples: int) -> int:
    """The number of samples per prompt, if there can be so many.

    Raises:
        RequestError: there cannot.
    """
    num_samples = in_form(num_samples, whole_number, "n", RequestError)
    if not 1 <= num_samples <= MAX_SAMPLES:
        raise RequestError(f"n must be between 1 and {MAX_SAMPLES}, not {num_samples}", param="n")
    return num_samples


def _token_ids(value: object) -> tuple[int, ...]:
    try:
        return whole_numbers(value)
    except FormError:
        raise FormError("a text or a list of token ids") from None


def _check_message(message: object, place: str) -> None:
    """Refuse what a template would render as something that nobody said, such as `None`."""
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise RequestError(f"{place} must be a mapping with role and content", param="messages")
    if not isinstance(message.get("content"), str):
        raise RequestError(f"{place} has no content; give it a text", param="messages")
