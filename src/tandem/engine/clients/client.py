"""How front ends talk to an engine, wherever it runs (contract 11)."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from typing import Any

from tandem.engine.clients.mailbox import Event, Failed, Mailbox, is_last
from tandem.spec.errors import EngineDeadError, TandemError
from tandem.spec.request import EngineRequest, RequestOutput

Stats = dict[str, Any]


class EngineClient(ABC):
    """Submit requests in token ids, follow them, abort them. Every method may be called from
    any thread and returns at once, except where it says that it waits.

    A request ends with exactly one last event: a `RequestOutput` with a finish reason, or a
    `Failed` (refused on arrival, or the engine died).
    """

    @abstractmethod
    def submit(self, request: EngineRequest, mailbox: Mailbox | None = None) -> Mailbox:
        """Hand `request` to the engine; its events go to `mailbox`, or to a new one.

        Whether the engine accepts it is an event (`Accepted` or `Failed`), since the engine may
        be in the middle of a step.

        Raises:
            RequestError: an unfinished request has the same id.
            EngineDeadError: the engine has stopped, or this client is closed.
        """

    @abstractmethod
    def abort(self, request_id: str) -> None:
        """End a request with finish reason ABORT and free its memory. Unknown ids are ignored."""

    @abstractmethod
    def abort_all(self) -> None:
        """Abort every unfinished request."""

    @abstractmethod
    def request_stats(self) -> "Future[Stats]":
        """Ask for the engine's counters; answered between two steps."""

    @abstractmethod
    def close(self) -> None:
        """Stop the engine and wait until nothing of it is left. Unfinished requests fail."""

    @property
    @abstractmethod
    def death(self) -> EngineDeadError | None:
        """Why the engine no longer runs, or None while it does."""

    @abstractmethod
    def on_death(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the engine no longer runs (closed, too): at once if so already,
        otherwise from the thread that finds out, which must not be held up.
        """

    def stats(self) -> Stats:
        """The engine's counters as plain JSON values; waits for the current step.

        Raises:
            EngineDeadError: the engine has stopped.
        """
        return self.request_stats().result()

    async def stats_async(self) -> Stats:
        """As `stats`, without blocking the running event loop."""
        return await asyncio.wrap_future(self.request_stats())

    def stream(self, mailbox: Mailbox) -> Iterator[RequestOutput]:
        """Outputs of the one request whose events go to `mailbox`, to its end; waits for each.

        Raises:
            TandemError: the request was refused or the engine died.
        """
        while True:
            for event in mailbox.take():
                if isinstance(event, RequestOutput):
                    yield event
                if _ends(event):
                    return

    async def stream_async(self, mailbox: Mailbox) -> AsyncIterator[RequestOutput]:
        """As `stream`, without blocking the running event loop."""
        while True:
            for event in await mailbox.take_async():
                if isinstance(event, RequestOutput):
                    yield event
                if _ends(event):
                    return


def _ends(event: Event) -> bool:
    if isinstance(event, Failed):
        raise event.error
    return is_last(event)


def fresh_error(error: TandemError) -> TandemError:
    """A copy of `error` to raise: one exception object must not be raised in several threads."""
    copy = type(error)(error.message, param=error.param)
    copy.__cause__ = error.__cause__
    return copy
