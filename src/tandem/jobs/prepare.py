"""From a line's request to the answer that is to be given; needs no engine."""

from typing import Any, TypeVar

from tandem.api.answer import Answer
from tandem.api.body import check_body
from tandem.api.chat_answer import ChatAnswer
from tandem.api.chat_schema import ChatRequest
from tandem.api.completion_answer import CompletionAnswer
from tandem.api.completion_schema import CompletionRequest
from tandem.api.errors import ApiError
from tandem.api.fields import GenerationFields
from tandem.api.named_model import NamedModel
from tandem.jobs.request_line import RequestLine
from tandem.spec.random import derive_seed

_CHAT_URL = "/v1/chat/completions"

Body = TypeVar("Body", bound=GenerationFields)


def prepare_answer(model: NamedModel, request: RequestLine, seed: int) -> Answer[Any]:
    """Check a request and tokenize it.

    Args:
        seed: from which a request without one derives its own, by its line's number.

    Raises:
        ApiError: it asks for another model, or for what is not supported.
        RequestError: it can never be served.
    """
    if request.url == _CHAT_URL:
        chat = _checked(check_body(request.body, ChatRequest), request.number, seed)
        return ChatAnswer.prepare(model, chat)
    completion = _checked(check_body(request.body, CompletionRequest), request.number, seed)
    return CompletionAnswer.prepare(model, completion)


def _checked(body: Body, number: int, seed: int) -> Body:
    if body.stream:
        raise ApiError(400, "a batch does not stream; leave stream out", param="stream")
    if body.seed is not None:
        return body
    return body.model_copy(update={"seed": derive_seed(seed, number, 0)})
