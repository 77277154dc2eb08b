"""Lets an event loop's other work run."""

import asyncio


async def loop_turn() -> None:
    """Go on once everything that is ready now has had its turn."""
    loop = asyncio.get_running_loop()
    turn: asyncio.Future[None] = loop.create_future()
    loop.call_soon(resolve, turn)
    await turn


def resolve(future: "asyncio.Future[None]") -> None:
    """Wake who waits for `future`, if nobody has."""
    if not future.done():
        future.set_result(None)
