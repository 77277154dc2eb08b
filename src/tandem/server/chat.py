"""POST /v1/chat/completions."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from tandem.engine.frontend.frontend import Job
from tandem.engine.frontend.results import Delta, SampleOutput
from tandem.server.answer import Answer, Deltas
from tandem.server.body import read_body
from tandem.server.chat_schema import ChatRequest
from tandem.server.context import ServerContext, context_of
from tandem.server.logprobs import chat_logprobs

router = APIRouter()


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
    return await ChatAnswer(context, body, jobs).respond(request, arrived_at)


def _job(context: ServerContext, body: ChatRequest) -> Job:
    sampling = body.sampling()
    prompt = context.frontend.chat_prompt(
        body.conversation(), options=body.chat_template_kwargs or {}
    )
    return Job(prompt, sampling, body.num_samples, body.priority)


class ChatAnswer(Answer[ChatRequest]):
    """The answer to one conversation, as OpenAI's objects."""

    def __init__(self, context: ServerContext, body: ChatRequest, jobs: Sequence[Job]) -> None:
        super().__init__(context, body, jobs, "chatcmpl")

    async def whole(self, deltas: Deltas) -> dict[str, Any]:
        """The answer once everything is generated."""
        (output,) = await self._collect(deltas)
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
                yield self._piece(index, {"role": "assistant", "content": ""})
            async for delta in deltas:
                self._usage.add(delta)
                if delta.text or delta.logprobs or delta.finish_reason:
                    content = {"content": delta.text} if delta.text else {}
                    yield self._piece(delta.sample_index, content, delta)
        if self._body.wants_usage:
            yield self._usage_chunk()

    def _choice(self, sample: SampleOutput) -> dict[str, Any]:
        return {
            "index": sample.index,
            "message": {"role": "assistant", "content": sample.text, "refusal": None},
            "logprobs": self._logprobs(sample),
            "finish_reason": sample.finish_reason,
            "stop_reason": sample.stop_reason,
        }

    def _piece(
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
        return self._chunk([choice])

    def _chunk_head(self) -> dict[str, Any]:
        return {**self._head, "object": "chat.completion.chunk"}

    def _logprobs(self, news: SampleOutput | Delta) -> dict[str, Any] | None:
        if not self._body.logprobs:
            return None
        return chat_logprobs(self._context.frontend.tokenizer, news.token_ids, news.logprobs)
