"""Which mailbox belongs to which unfinished request."""

import threading
from collections.abc import Callable

from tandem.engine.clients.client import fresh_error
from tandem.engine.clients.mailbox import Event, Failed, Mailbox, is_last
from tandem.spec.errors import EngineDeadError, RequestError
from tandem.spec.request import FinishReason, RequestOutput


class RequestRegistry:
    """Routes events to mailboxes; shared by the engine's thread and the front ends'.

    Every registered request gets exactly one last event, also if the engine dies.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant for the reason given in Mailbox
        self._mailboxes: dict[str, Mailbox] = {}
        self._death: EngineDeadError | None = None
        self._on_death: list[Callable[[], None]] = []

    @property
    def death(self) -> EngineDeadError | None:
        """Why no event will come any more, or None."""
        return self._death

    def on_death(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the engine is dead; at once if it is."""
        with self._lock:
            dead = self._death is not None
            if not dead:
                self._on_death.append(callback)
        if dead:
            callback()

    def register(self, request_id: str, mailbox: Mailbox) -> None:
        """Route the request's events to `mailbox` until its last one.

        Raises:
            RequestError: the id is taken.
            EngineDeadError: the engine is dead.
        """
        with self._lock:
            if self._death is not None:
                raise fresh_error(self._death)
            if request_id in self._mailboxes:
                raise RequestError(
                    f"request id '{request_id}' is in use; choose another", param="request_id"
                )
            self._mailboxes[request_id] = mailbox

    def deliver(self, event: Event) -> None:
        """Put `event` into its request's mailbox; events of ended requests are dropped."""
        with self._lock:
            mailbox = self._mailboxes.get(event.request_id)
            if mailbox is None:
                return
            if is_last(event):
                self._mailboxes.pop(event.request_id, None)
            # Inside the lock, so that an abort cannot overtake an output in the mailbox.
            mailbox.put(event)

    def abort(self, request_id: str) -> bool:
        """End a request as aborted; False if it had ended already."""
        with self._lock:
            mailbox = self._mailboxes.pop(request_id, None)
            if mailbox is not None:
                mailbox.put(RequestOutput(request_id, (), FinishReason.ABORT))
        return mailbox is not None

    def unfinished(self) -> list[str]:
        """Ids of the requests whose last event has not come."""
        with self._lock:
            return list(self._mailboxes)

    def fail_all(self, error: EngineDeadError) -> None:
        """Fail every unfinished and every later request with `error`; the first call counts."""
        with self._lock:
            if self._death is not None:
                return
            self._death = error
            mailboxes, self._mailboxes = self._mailboxes, {}
            for request_id, mailbox in mailboxes.items():
                mailbox.put(Failed(request_id, fresh_error(error)))
            callbacks, self._on_death = self._on_death, []
        for callback in callbacks:
            callback()
