"""Sends an answer over HTTP."""

from typing import Any

from fastapi import Request
from starlette.responses import JSONResponse, Response

from tandem.api.answer import Answer
from tandem.server.context import ServerContext
from tandem.server.disconnect import unless_gone
from tandem.server.event_stream import EventStream


async def respond(
    request: Request, context: ServerContext, answer: Answer[Any], arrived_at: float
) -> Response:
    """Generate and send, whole or as a stream; a client that leaves aborts its jobs.

    Args:
        arrived_at: when the request came, by `time.perf_counter`.
    """
    generation = context.frontend.start(answer.jobs)
    await unless_gone(request.receive, generation.accepted())
    deltas = context.metrics.requests.observed(generation, answer.jobs, arrived_at)
    if answer.is_stream:
        return EventStream(answer.chunks(deltas))
    return JSONResponse(await unless_gone(request.receive, answer.whole(deltas)))
