"""Lets an answer that comes before its request has been read reach the client."""

import asyncio
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Whoever still sends then has had the answer for so long.
_PATIENCE_S = 5


class ReadToEnd:
    """Reads, and throws away, what is left of a request that has been answered.

    A connection that is closed with bytes that nobody read is reset, and a client that still sends
    sees the reset in place of the answer (RFC 9112, 9.6).
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hold the end of the answer back until the request has been read."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_ended = False

        async def received() -> Message:
            nonlocal has_ended
            message = await receive()
            has_ended = not message.get("more_body", False)
            return message

        async def sent(message: Message) -> None:
            is_last = message["type"] == "http.response.body" and not message.get("more_body")
            if has_ended or not is_last:
                await send(message)
                return
            # The answer itself goes out at once: not all clients send to the end before they read.
            await send({**message, "more_body": True})
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE_S):
                    while not has_ended:
                        await received()
            await send({"type": "http.response.body", "body": b""})

        await self._app(scope, received, sent)
