"""Checks before any route: who asks, and how much they send.

Plain ASGI, since Starlette's function middleware would hide a client's disconnection.
"""

import hmac
from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tandem.api.errors import ApiError
from tandem.server.error_response import error_response

_OPEN_PATHS = ("/health",)


class RequireApiKey:
    """Refuses requests without one of the keys, except for the health check."""

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app = app
        self._keys = [key.encode() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the bearer token, then pass the request on."""
        is_open = scope["type"] != "http" or scope["path"] in _OPEN_PATHS or not self._keys
        if is_open or self._is_known(_bearer_token(scope)):
            await self._app(scope, receive, send)
            return
        error = ApiError(
            401,
            "the API key is missing or wrong; send it as 'Authorization: Bearer KEY'",
            kind="authentication_error",
            code="invalid_api_key",
        )
        await error_response(error)(scope, receive, send)

    def _is_known(self, token: bytes) -> bool:
        # All keys are compared, each in constant time: the duration tells nothing about them.
        matches = [hmac.compare_digest(token, key) for key in self._keys]
        return any(matches)


class RefuseOtherPages:
    """Refuses what web pages ask whose origin is not among `origins`; `*`: none is refused.

    Browsers keep answers from such pages, but pass some requests on without asking first (POST with
    a body that calls itself text), and know no difference where a page's name was made to lead
    here. They say in every POST where it comes from; other clients do not.
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        self._app = app
        self._allows_all = "*" in origins
        self._origins = {origin.encode() for origin in origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the origin, then pass the request on."""
        origin = _header(scope, b"origin") if scope["type"] == "http" else b""
        if not origin or self._allows_all or origin in self._origins:
            await self._app(scope, receive, send)
            return
        error = ApiError(
            403,
            f"web pages of '{origin.decode('latin-1')}' may not ask this server; {_way_in(origin)}",
            kind="permission_error",
            code="origin_not_allowed",
        )
        await error_response(error)(scope, receive, send)


def _way_in(origin: bytes) -> str:
    if origin == b"null":  # files, and frames that any page can make
        return "open the page from an http:// address, and start the server with --allowed-origins"
    return "start it with --allowed-origins and that origin, or leave the header Origin out"


class LimitBody:
    """Refuses bodies above a size, also those that do not announce it."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count while the body is read."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise self._too_large()
            return message

        announced = _header(scope, b"content-length")
        if announced.isdigit() and int(announced) > self._max_bytes:
            await error_response(self._too_large())(scope, receive, send)
            return
        await self._app(scope, counted, send)

    def _too_large(self) -> ApiError:
        return ApiError(
            413, f"the request body exceeds {self._max_bytes} bytes; send less at a time"
        )


def _bearer_token(scope: Scope) -> bytes:
    scheme, _, token = _header(scope, b"authorization").partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def _header(scope: Scope, name: bytes) -> bytes:
    return next((value for key, value in scope["headers"] if key == name), b"")
