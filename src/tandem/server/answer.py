"""What both generation endpoints do with the deltas of a request."""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Generic, TypeVar

from fastapi import Request
from starlette.responses import JSONResponse, Response

from tandem.engine.frontend.collector import Collector
from tandem.engine.frontend.frontend import Job
from tandem.engine.frontend.results import Delta, GenerationOutput
from tandem.server.context import ServerContext
from tandem.server.disconnect import unless_gone
from tandem.server.event_stream import EventStream
from tandem.server.fields import GenerationFields
from tandem.server.usage import UsageCounter

Deltas = AsyncGenerator[Delta, None]
Body = TypeVar("Body", bound=GenerationFields)


class Answer(ABC, Generic[Body]):
    """Turns the deltas of one request into OpenAI's objects.

    Args:
        id_prefix: kind of the answer's id.
    """

    def __init__(
        self, context: ServerContext, body: Body, jobs: Sequence[Job], id_prefix: str
    ) -> None:
        self._context = context
        self._body = body
        self._jobs = jobs
        self._usage = UsageCounter(jobs)
        self._head: dict[str, Any] = {
            "id": f"{id_prefix}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": context.model_name,
        }
        if body.service_tier is not None:
            self._head["service_tier"] = body.service_tier

    async def respond(self, request: Request, arrived_at: float) -> Response:
        """Generate and send, whole or as a stream; a client that leaves aborts its jobs.

        Args:
            arrived_at: when the request came, by `time.perf_counter`.
        """
        generation = self._context.frontend.start(self._jobs)
        await unless_gone(request.receive, generation.accepted())
        deltas = self._context.metrics.observed(generation, self._jobs, arrived_at)
        if self._body.stream:
            return EventStream(self.chunks(deltas))
        return JSONResponse(await unless_gone(request.receive, self.whole(deltas)))

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
