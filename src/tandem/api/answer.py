"""What both kinds of completion do with the deltas of a request."""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Generic, TypeVar

from tandem.api.fields import GenerationFields
from tandem.api.named_model import NamedModel
from tandem.api.usage import UsageCounter
from tandem.engine.frontend.collector import Collector
from tandem.engine.frontend.frontend import Job
from tandem.engine.frontend.results import Delta, GenerationOutput

Deltas = AsyncGenerator[Delta, None]
Body = TypeVar("Body", bound=GenerationFields)


class Answer(ABC, Generic[Body]):
    """Turns the deltas of one request into OpenAI's objects.

    Args:
        id_prefix: kind of the answer's id.
    """

    def __init__(self, model: NamedModel, body: Body, jobs: Sequence[Job], id_prefix: str) -> None:
        self._reader = model.reader
        self._body = body
        self._jobs = jobs
        self._usage = UsageCounter(jobs)
        self._head: dict[str, Any] = {
            "id": f"{id_prefix}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model.name,
        }
        if body.served_tier is not None:
            self._head["service_tier"] = body.served_tier

    @classmethod
    @abstractmethod
    def prepare(cls, model: NamedModel, body: Body) -> "Answer[Body]":
        """Check the request and tokenize its prompts.

        Raises:
            ApiError: another model is asked for, or something that is not supported.
            RequestError: a value out of range, or a prompt that cannot be read.
        """

    @property
    def jobs(self) -> Sequence[Job]:
        """What must be generated for it."""
        return self._jobs

    @property
    def is_stream(self) -> bool:
        """True if the caller wants it as it comes."""
        return bool(self._body.stream)

    @property
    def usage(self) -> dict[str, Any]:
        """Tokens so far, as OpenAI reports them."""
        return self._usage.report()

    @property
    def num_output_tokens(self) -> int:
        """Generated so far."""
        return self._usage.num_output_tokens

    @abstractmethod
    async def whole(self, deltas: Deltas) -> dict[str, Any]:
        """The answer once everything is generated."""

    @abstractmethod
    def chunks(self, deltas: Deltas) -> AsyncGenerator[dict[str, Any], None]:
        """The answer as it comes."""

    async def _collect(self, deltas: Deltas) -> list[GenerationOutput]:
        collector = Collector(self._jobs)
        async with aclosing(deltas):
            async for delta in deltas:
                self._usage.add(delta)
                collector.add(delta)
        return collector.outputs()

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        chunk: dict[str, Any] = {**self._chunk_head(), "choices": choices}
        options = self._body.stream_options
        if options and options.include_usage:
            chunk["usage"] = self._usage.report() if options.continuous_usage_stats else None
        return chunk

    def _usage_chunk(self) -> dict[str, Any]:
        return {**self._chunk_head(), "choices": [], "usage": self._usage.report()}

    @abstractmethod
    def _chunk_head(self) -> dict[str, Any]: ...
