"""What the job layer asks of an engine, and the engine behind a front end."""

from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from tandem.api.answer import Answer
from tandem.api.named_model import NamedModel
from tandem.engine.frontend.frontend import Frontend
from tandem.jobs.prepare import prepare_answer
from tandem.jobs.request_line import RequestLine


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
        self, frontend: Frontend, answer: Answer[Any], running: "set[PreparedAnswer]"
    ) -> None:
        self._frontend = frontend
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
            generation = self._frontend.start(self._answer.jobs)
            async with aclosing(generation.__aiter__()) as deltas:
                return await self._answer.whole(deltas)
        finally:
            self._running.discard(self)


class FrontendAnswerer:
    """Answers by an engine behind a front end.

    Args:
        names: by which lines may ask for the model.
        seed: from which requests without a seed derive theirs, by their lines' numbers, so that
            a resumed job samples as an undisturbed one.
    """

    def __init__(self, frontend: Frontend, names: tuple[str, ...], seed: int) -> None:
        self._frontend = frontend
        self._model = NamedModel(frontend, names)
        self._seed = seed
        self._running: set[PreparedAnswer] = set()

    @property
    def num_running_tokens(self) -> int:
        """Output tokens so far of requests that still run."""
        return sum(answer.num_output_tokens for answer in self._running)

    def prepare(self, request: RequestLine) -> PreparedAnswer:
        """See `Answerer.prepare`."""
        answer = prepare_answer(self._model, request, self._seed)
        return PreparedAnswer(self._frontend, answer, self._running)
