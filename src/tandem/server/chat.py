"""POST /v1/chat/completions."""

import asyncio
import time

from fastapi import APIRouter, Request
from starlette.responses import Response

from tandem.api.chat_answer import ChatAnswer
from tandem.api.chat_schema import ChatRequest
from tandem.server.context import context_of
from tandem.server.read_body import read_body
from tandem.server.respond import respond

router = APIRouter()


@router.post("/v1/chat/completions")
async def create_chat_completion(request: Request) -> Response:
    """Answer a conversation."""
    arrived_at = time.perf_counter()
    context = context_of(request)
    body = await read_body(request, ChatRequest)
    # On a thread: a long conversation must not stall the streams of others.
    answer = await asyncio.to_thread(ChatAnswer.prepare, context.model, body)
    return await respond(request, context, answer, arrived_at)
