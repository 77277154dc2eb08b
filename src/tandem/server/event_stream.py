"""Server-sent events."""

import json
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tandem.api.errors import api_error
from tandem.server.disconnect import ClientGoneError, unless_gone
from tandem.spec.errors import TandemError

_LOG = logging.getLogger(__name__)

DONE = b"data: [DONE]\n\n"


class EventStream(Response):
    """Sends objects as events, then `[DONE]`. A disconnection closes the source at once, also
    while it has nothing to send (Starlette's own streams notice at the next send only).

    Args:
        source: what to send; closed in the end, whatever happens.
    """

    media_type = "text/event-stream"

    def __init__(self, source: AsyncGenerator[dict[str, Any], None]) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything, unless the client goes."""
        start = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **start})
        try:
            await unless_gone(receive, self._send_all(send))
        except (ClientGoneError, OSError):
            return

    async def _send_all(self, send: Send) -> None:
        async with aclosing(self._source) as source:
            try:
                async for event in source:
                    await _send_chunk(send, event_bytes(event))
            except TandemError as error:
                await _send_chunk(send, event_bytes(api_error(error).body()))
            except Exception as error:  # noqa: BLE001 (the status line is out already)
                _LOG.exception("a stream failed")
                await _send_chunk(send, event_bytes(api_error(error).body()))
        await _send_chunk(send, DONE)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def event_bytes(event: dict[str, Any]) -> bytes:
    """One event as it goes over the wire."""
    return f"data: {json.dumps(event, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


async def _send_chunk(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})
