"""POST /v1/chat/completions."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from tandem.engine.frontend.collector import Collector
from tandem.engine.frontend.frontend import Job
from tandem.engine.frontend.results import Delta, SampleOutput
from tandem.server.body import read_body
from tandem.server.chat_schema import ChatRequest
from tandem.server.context import ServerContext, context_of
from tandem.server.disconnect import unless_gone
from tandem.server.event_stream import EventStream
from tandem.server.logprobs import chat_logprobs
from tandem.server.usage import UsageCounter

router = APIRouter()

Deltas = AsyncGenerator[Delta, None]


@router.post("/v1/chat/completions")
async def create_chat_completion(request: Request) -> Response:
    """Answer a conversation."""
    arrived_at = time.perf_counter()
    context = context_of(request)
    body = await read_body(request, ChatRequest)
    context.check_model(body.model)
    body.check()
    # On a thread: a long conversation must not stall the streams of others.
    jobs = [await asyncio.to_thread(_job, context, body)]
    generation = context.frontend.start(jobs)
    await unless_gone(request.receive, generation.accepted())
    deltas = context.metrics.observed(generation, jobs, arrived_at)
    answer = ChatAnswer(context, body, jobs)
    if body.stream:
        return EventStream(answer.chunks(deltas))
    return JSONResponse(await unless_gone(request.receive, answer.whole(deltas)))


def _job(context: ServerContext, body: ChatRequest) -> Job:
    sampling = body.sampling()
    prompt = context.frontend.chat_prompt(
        body.conversation(), options=body.chat_template_kwargs or {}
    )
    return Job(prompt, sampling, body.num_samples, body.priority)


class ChatAnswer:
    """Turns the deltas of one request into OpenAI's objects."""

    def __init__(self, context: ServerContext, body: ChatRequest, jobs: Sequence[Job]) -> None:
        self._context = context
        self._body = body
        self._jobs = jobs
        self._usage = UsageCounter(jobs)
        self._head = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": context.model_name,
        }
        if body.service_tier is not None:
            self._head["service_tier"] = body.service_tier

    async def whole(self, deltas: Deltas) -> dict[str, Any]:
        """The answer once everything is generated."""
        collector = Collector(self._jobs)
        async with aclosing(deltas):
            async for delta in deltas:
                self._usage.add(delta)
                collector.add(delta)
        (output,) = collector.outputs()
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [self._choice(sample) for sample in output.outputs],
            "usage": self._usage.report(),
        }

    async def chunks(self, deltas: Deltas) -> AsyncGenerator[dict[str, Any], None]:
        """The answer as it comes."""
        async with aclosing(deltas):
            for index in range(self._body.num_samples):
                yield self._chunk(index, {"role": "assistant", "content": ""})
            async for delta in deltas:
                self._usage.add(delta)
                if delta.text or delta.logprobs or delta.finish_reason:
                    content = {"content": delta.text} if delta.text else {}
                    yield self._chunk(delta.sample_index, content, delta)
        if self._body.wants_usage:
            yield {**self._chunk_head(), "choices": [], "usage": self._usage.report()}

    def _choice(self, sample: SampleOutput) -> dict[str, Any]:
        return {
            "index": sample.index,
            "message": {"role": "assistant", "content": sample.text, "refusal": None},
            "logprobs": self._logprobs(sample),
            "finish_reason": sample.finish_reason,
            "stop_reason": sample.stop_reason,
        }

    def _chunk(
        self, index: int, content: dict[str, Any], delta: Delta | None = None
    ) -> dict[str, Any]:
        choice = {
            "index": index,
            "delta": content,
            "logprobs": None if delta is None else self._logprobs(delta),
            "finish_reason": None if delta is None else delta.finish_reason,
        }
        if delta is not None and delta.finish_reason is not None:
            choice["stop_reason"] = delta.stop_reason
        chunk: dict[str, Any] = {**self._chunk_head(), "choices": [choice]}
        options = self._body.stream_options
        if options and options.include_usage:
            chunk["usage"] = self._usage.report() if options.continuous_usage_stats else None
        return chunk

    def _chunk_head(self) -> dict[str, Any]:
        return {**self._head, "object": "chat.completion.chunk"}

    def _logprobs(self, news: SampleOutput | Delta) -> dict[str, Any] | None:
        if not self._body.logprobs:
            return None
        return chat_logprobs(self._context.frontend.tokenizer, news.token_ids, news.logprobs)
