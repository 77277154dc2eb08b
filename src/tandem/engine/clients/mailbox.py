"""Where the engine puts news about requests, and one consumer takes them."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass

from tandem.engine.clients.loop_turn import loop_turn, resolve
from tandem.spec.errors import TandemError
from tandem.spec.request import RequestOutput


@dataclass(frozen=True, slots=True)
class Accepted:
    """The engine has taken a request in; it will end with a finish reason or a `Failed`."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A request ended without a result: it was refused, or the engine died."""

    request_id: str
    error: TandemError


Event = Accepted | Failed | RequestOutput


def is_last(event: Event) -> bool:
    """True if nothing follows `event` for its request."""
    if isinstance(event, RequestOutput):
        return event.finish_reason is not None
    return isinstance(event, Failed)


class Mailbox:
    """Unbounded, ordered events of one or more requests.

    Any thread may `put`; one consumer takes, from a thread (`take`) or an event loop
    (`take_async`). Several requests may share a mailbox, so that a consumer of many needs
    neither a thread nor a task for each.
    """

    def __init__(self) -> None:
        # Reentrant, since the garbage collector may close an abandoned stream, and so abort its
        # requests, anywhere: also on a thread that is in here.
        self._lock = threading.RLock()
        self._events: list[Event] = []
        self._wake: Callable[[], None] | None = None

    def put(self, event: Event) -> None:
        """Append `event` and wake the consumer."""
        with self._lock:
            self._events.append(event)
            wake, self._wake = self._wake, None
        if wake is not None:
            wake()

    def take(self) -> list[Event]:
        """Wait for at least one event; return all that are there, oldest first."""
        while True:
            ready = threading.Event()
            events = self._take_or_register(ready.set)
            if events:
                return events
            ready.wait()

    async def take_async(self) -> list[Event]:
        """As `take`, without blocking the running event loop.

        The loop gets a turn even if events are there: a fast engine must not starve it.
        """
        await loop_turn()
        loop = asyncio.get_running_loop()
        while True:
            ready: asyncio.Future[None] = loop.create_future()
            events = self._take_or_register(lambda ready=ready: _wake_loop(loop, ready))
            if events:
                return events
            await ready

    def _take_or_register(self, wake: Callable[[], None]) -> list[Event]:
        with self._lock:
            self._wake = wake
            events, self._events = self._events, []
            if events:
                self._wake = None
        return events


def _wake_loop(loop: asyncio.AbstractEventLoop, ready: "asyncio.Future[None]") -> None:
    # A consumer whose loop has ended must not hurt the engine's thread, which calls this.
    if not loop.is_closed():
        loop.call_soon_threadsafe(resolve, ready)
