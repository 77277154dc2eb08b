"""GET /health, /version and /metrics."""

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, Response

import tandem
from tandem.server.context import context_of

router = APIRouter()


@router.api_route("/health", methods=["GET", "HEAD"])
async def health(request: Request) -> Response:
    """200 while the engine runs, 503 once it is dead."""
    context = context_of(request)
    death = context.frontend.client.death
    if death is None:
        return JSONResponse({"status": "ok"})
    return JSONResponse({"status": "dead", "reason": death.message}, 503)


@router.api_route("/version", methods=["GET", "HEAD"])
async def version() -> dict[str, str]:
    """Tandem's, where vLLM tells its own."""
    return {"version": tandem.__version__}


@router.api_route("/metrics", methods=["GET", "HEAD"])
async def metrics(request: Request) -> Response:
    """Prometheus' text format."""
    context = context_of(request)
    stats = await context.frontend.client.stats_async()
    return Response(context.metrics.render(stats), media_type=CONTENT_TYPE_LATEST)
