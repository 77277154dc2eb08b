"""The ASGI application: routes, checks and error shapes around a loaded service."""

import logging

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import Route

import tandem
from tandem.api.errors import ApiError, api_error
from tandem.server import chat, completions, models, status, tokens
from tandem.server.context import ServerContext
from tandem.server.disconnect import ClientGoneError
from tandem.server.error_response import error_response
from tandem.server.middleware import LimitBody, RefuseOtherPages, RequireApiKey
from tandem.server.read_to_end import ReadToEnd
from tandem.spec.errors import TandemError

_LOG = logging.getLogger(__name__)

_ROUTERS = (completions.router, chat.router, models.router, tokens.router, status.router)

# Nobody reads it; the status only shows in the access log (nginx's convention).
_CLIENT_GONE_STATUS = 499


def create_app(context: ServerContext) -> FastAPI:
    """An application that answers from `context`; its owner closes the service."""
    app = FastAPI(
        title="Tandem",
        version=tandem.__version__,
        openapi_url=None,
        redirect_slashes=False,
        exception_handlers={
            HTTPException: _on_http_error,
            ApiError: _on_error,
            TandemError: _on_error,
            ClientGoneError: _on_client_gone,
            Exception: _on_fault,
        },
    )
    app.state.context = context
    for router in _ROUTERS:
        app.include_router(router)
    app.add_middleware(LimitBody, max_bytes=context.settings.max_body_bytes)
    app.add_middleware(RequireApiKey, keys=context.settings.api_keys)
    app.add_middleware(RefuseOtherPages, origins=context.settings.allowed_origins)
    if context.settings.allowed_origins:
        # Around the others: browsers ask without a key whether they may send one.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=context.settings.allowed_origins,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),
        )
    app.add_middleware(ReadToEnd)  # around all that may answer
    return app


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        message = f"there is no {request.url.path} here; there are {', '.join(_paths())}"
        return error_response(ApiError(404, message, code="unknown_url"))
    if error.status_code == 405:
        allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
        message = f"{request.method} is not allowed for {request.url.path}; use {allowed}"
        answer = error_response(ApiError(405, message, code="method_not_allowed"))
        answer.headers["Allow"] = allowed  # RFC 9110, 15.5.6
        return answer
    return error_response(ApiError(error.status_code, str(error.detail)))


def _paths() -> list[str]:
    routes = [route for router in _ROUTERS for route in router.routes if isinstance(route, Route)]
    return [route.path for route in routes if "{" not in route.path]


async def _on_error(request: Request, error: Exception) -> Response:
    del request
    return error_response(api_error(error))


async def _on_client_gone(request: Request, error: Exception) -> Response:
    del request, error
    return Response(status_code=_CLIENT_GONE_STATUS)


async def _on_fault(request: Request, error: Exception) -> Response:
    _LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return error_response(api_error(error))
