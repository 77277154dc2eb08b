"""The body of /v1/chat/completions."""

from typing import Any, Literal

from pydantic import Field

from tandem.api.body import StrictBody, refuse_unknown
from tandem.api.errors import ApiError, unsupported
from tandem.api.fields import GenerationFields
from tandem.spec.sampling import MAX_LOGPROBS, SamplingParams

# Newer clients call the system message so; models' templates do not know the name.
_ROLE_IN_TEMPLATES = {"developer": "system"}


class ContentPart(StrictBody):
    """A piece of a message; only text so far."""

    type: str
    text: str | None = None


class ChatMessage(StrictBody):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    name: str | None = None

    def for_template(self, place: str) -> dict[str, Any]:
        """The message as chat templates read it.

        Raises:
            ApiError: it holds something other than text; `place` says where.
        """
        refuse_unknown(self, f"{place}.")
        message = {
            "role": _ROLE_IN_TEMPLATES.get(self.role, self.role),
            "content": self._text(place),
        }
        return message if self.name is None else {**message, "name": self.name}

    def _text(self, place: str) -> str:
        if isinstance(self.content, str):
            return self.content
        if self.content is None:
            raise ApiError(400, f"{place} has no content; give it a text", param="messages")
        for part in self.content:
            if part.type != "text" or part.text is None:
                raise unsupported(
                    f"{place} has content of type '{part.type}'; only text is supported", "messages"
                )
        return "\n".join(part.text or "" for part in self.content)


class ResponseFormat(StrictBody):
    """The shape of the answer; only free text so far."""

    type: str


class ChatRequest(GenerationFields):
    """OpenAI's fields and the shared extensions."""

    messages: list[ChatMessage] = Field(min_length=1)
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    response_format: ResponseFormat | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    functions: list[Any] | None = None
    function_call: Any = None
    modalities: list[str] | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def check(self) -> None:
        """See `GenerationFields.check`."""
        super().check()
        if self.tools or self.functions:
            field = "tools" if self.tools else "functions"
            raise unsupported(f"{field} are not supported; leave them out", field)
        for name in ("tool_choice", "function_call"):  # the second is the older name
            if getattr(self, name) not in (None, "none", "auto"):
                raise ApiError(400, f"{name} needs tools; leave it out", param=name)
        if self.response_format is not None and self.response_format.type != "text":
            raise unsupported(
                f"response_format '{self.response_format.type}' is not supported; use 'text'",
                "response_format",
            )
        if self.modalities not in (None, ["text"]):
            raise unsupported("only text is produced; use ['text']", "modalities")
        if self.top_logprobs is not None and not self.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs: true; set it", param="top_logprobs")

    def sampling(self) -> SamplingParams:
        """The sampling parameters; without a limit, the answer may fill the context."""
        limit = self.max_completion_tokens
        max_tokens = self.max_tokens if limit is None else limit
        return self.sampling_params(max_tokens, self.top_logprobs or 0 if self.logprobs else None)

    def conversation(self) -> list[dict[str, Any]]:
        """The messages as chat templates read them.

        Raises:
            ApiError: one cannot be expressed.
        """
        return [m.for_template(f"messages[{index}]") for index, m in enumerate(self.messages)]
