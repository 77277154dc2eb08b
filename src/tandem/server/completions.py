"""POST /v1/completions."""

import asyncio
import time

from fastapi import APIRouter, Request
from starlette.responses import Response

from tandem.api.completion_answer import CompletionAnswer
from tandem.api.completion_schema import CompletionRequest
from tandem.server.context import context_of
from tandem.server.read_body import read_body
from tandem.server.respond import respond

router = APIRouter()


@router.post("/v1/completions")
async def create_completion(request: Request) -> Response:
    """Continue prompts."""
    arrived_at = time.perf_counter()
    context = context_of(request)
    body = await read_body(request, CompletionRequest)
    # On a thread: a long prompt must not stall the streams of others.
    answer = await asyncio.to_thread(CompletionAnswer.prepare, context.model, body)
    return await respond(request, context, answer, arrived_at)
