"""What the job layer asks of an engine, and the engine behind a front end."""

from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

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


@dataclass(frozen=True, slots=True)
class Load:
    """What a request means to an engine: sequences, and tokens of their prompts."""

    num_sequences: int
    num_tokens: int


class Prepared(Protocol):
    """A request that can run."""

    @property
    def load(self) -> Load:
        """What it will need."""
        ...

    async def run(self) -> dict[str, Any]:
        """OpenAI's object for it; cancelling frees what it holds.

        Raises:
            EngineDeadError: no request can run any more.
            TandemError: this one was refused or failed.
        """
        ...


class Answerer(Protocol):
    """Answers requests, many at a time."""

    def prepare(self, request: RequestLine) -> Prepared:
        """Check a request and tokenize it.

        Raises:
            ApiError: it asks for what is not supported.
            RequestError: it can never be served.
        """
        ...


class PreparedAnswer:
    """An answer that an engine has yet to give.

    Args:
        running: it is in there while it runs.
    """

    def __init__(
        self, model: NamedModel, answer: Answer[Any], running: "set[PreparedAnswer]"
    ) -> None:
        self._model = model
        self._answer = answer
        self._running = running

    @property
    def num_output_tokens(self) -> int:
        """Generated so far."""
        return self._answer.num_output_tokens

    @property
    def load(self) -> Load:
        """See `Prepared.load`."""
        jobs = self._answer.jobs
        num_tokens = sum(len(job.prompt.token_ids) * job.num_samples for job in jobs)
        return Load(sum(job.num_samples for job in jobs), num_tokens)

    async def run(self) -> dict[str, Any]:
        """See `Prepared.run`."""
        self._running.add(self)
        try:
            generation = self._model.frontend.start(self._answer.jobs)
            async with aclosing(generation.__aiter__()) as deltas:
                return await self._answer.whole(deltas)
        finally:
            self._running.discard(self)


class FrontendAnswerer:
    """Answers by an engine behind a front end.

    Args:
        seed: from which requests without a seed derive theirs, by their lines' numbers, so that
            a resumed job samples as an undisturbed one.
    """

    def __init__(self, model: NamedModel, seed: int) -> None:
        self._model = model
        self._seed = seed
        self._running: set[PreparedAnswer] = set()

    @property
    def num_running_tokens(self) -> int:
        """Output tokens so far of requests that still run."""
        return sum(answer.num_output_tokens for answer in self._running)

    def prepare(self, request: RequestLine) -> PreparedAnswer:
        """See `Answerer.prepare`."""
        answer: Answer[Any]
        if request.url == _CHAT_URL:
            chat = self._checked(check_body(request.body, ChatRequest), request.number)
            answer = ChatAnswer.prepare(self._model, chat)
        else:
            completion = self._checked(check_body(request.body, CompletionRequest), request.number)
            answer = CompletionAnswer.prepare(self._model, completion)
        return PreparedAnswer(self._model, answer, self._running)

    def _checked(self, body: Body, number: int) -> Body:
        if body.stream:
            raise ApiError(400, "a batch does not stream; leave stream out", param="stream")
        if body.seed is not None:
            return body
        return body.model_copy(update={"seed": derive_seed(self._seed, number, 0)})
