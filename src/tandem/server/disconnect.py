"""Stops work for a client that has gone."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")


class ClientGoneError(Exception):
    """The client closed the connection; there is nobody to answer."""


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client disconnects.

    The request's body must have been read: any message but a disconnection is skipped.

    Raises:
        ClientGoneError: the client disconnected first.
    """
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_disconnection(receive))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGoneError
    finally:
        # Both are awaited, so that what they hold is freed before this returns.
        for future in (task, watch):
            future.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _disconnection(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
