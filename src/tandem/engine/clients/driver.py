"""Drives an engine core on one thread and lets other threads talk to it."""

import logging
import queue
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from tandem.engine.clients.mailbox import Accepted, Event, Failed
from tandem.engine.exhausted import exhausted_remedy
from tandem.spec.errors import EngineDeadError, TandemError
from tandem.spec.request import EngineRequest, RequestOutput

_LOG = logging.getLogger(__name__)


class Core(Protocol):
    """The engine core as its driver sees it; every method is called from one thread."""

    def add_request(self, request: EngineRequest) -> None:
        """Take `request` in, or raise a TandemError and keep nothing of it."""
        ...

    def abort(self, request_id: str) -> None:
        """Drop a request; unknown ids are ignored."""
        ...

    def has_work(self) -> bool:
        """True if `step` has something to do."""
        ...

    def step(self) -> Sequence[RequestOutput]:
        """One iteration; raises only if the engine cannot go on."""
        ...

    def wake_by(self, wake: Callable[[], None]) -> None:
        """Have `wake` called, on any thread, when `tend` is wanted."""
        ...

    def is_parked(self) -> bool:
        """True if `step` could do nothing before `wake` is called, or a request comes or goes."""
        ...

    def tend(self) -> None:
        """Take in what happened beside the steps."""
        ...

    def stats(self) -> Any:
        """A dataclass of plain values."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...


@dataclass(frozen=True, slots=True)
class Submit:
    """Add a request."""

    request: EngineRequest


@dataclass(frozen=True, slots=True)
class Abort:
    """Drop a request."""

    request_id: str


@dataclass(frozen=True, slots=True)
class ReadStats:
    """Report the core's counters through `reply`."""

    reply: Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Wake:
    """See to what has happened beside the steps."""


@dataclass(frozen=True, slots=True)
class Close:
    """Leave the loop."""


Command = Submit | Abort | ReadStats | Wake | Close


class EngineDriver:
    """The loop around a core: commands, then one step, as long as there is work.

    Args:
        core: what is driven; owned, and closed when the loop ends.
        deliver: called with every event, from the loop's thread.
    """

    def __init__(self, core: Core, deliver: Callable[[Event], None]) -> None:
        self._core = core
        self._deliver = deliver
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        core.wake_by(lambda: self._commands.put(Wake()))

    def post(self, command: Command) -> None:
        """Hand over a command, from any thread; it is carried out before the next step."""
        self._commands.put(command)

    def run(self) -> None:
        """Loop until `Close`.

        Raises:
            EngineDeadError: the core failed; its requests will get no more events.
        """
        try:
            while self._obey_commands():
                for output in self._core.step():
                    self._deliver(output)
        except EngineDeadError:
            _LOG.exception("the engine stopped")
            raise
        except Exception as error:
            _LOG.exception("the engine stopped")
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            remedy = exhausted_remedy(error) or "restart it"
            raise EngineDeadError(f"the engine stopped ({reason}); {remedy}") from error
        finally:
            self._core.close()

    def _obey_commands(self) -> bool:
        """Carry out what is queued, waiting while nothing can run; False after `Close`."""
        while True:
            waits = self._core.is_parked() or not self._core.has_work()
            try:
                command = self._commands.get(block=waits)
            except queue.Empty:
                return True
            if isinstance(command, Close):
                return False
            self._obey(command)

    def _obey(self, command: Submit | Abort | ReadStats | Wake) -> None:
        match command:
            case Submit(request):
                self._deliver(self._submit(request))
            case Abort(request_id):
                self._core.abort(request_id)
            case ReadStats(reply):
                reply(asdict(self._core.stats()))
            case Wake():
                self._core.tend()

    def _submit(self, request: EngineRequest) -> Event:
        try:
            self._core.add_request(request)
        except TandemError as error:
            return Failed(request.request_id, error)
        except Exception as error:  # noqa: BLE001
            # A fault in taking one request in must not take the others down.
            _LOG.exception("request %s could not be taken in", request.request_id)
            message = f"internal error while accepting the request ({error!r}); see the log"
            return Failed(request.request_id, TandemError(message))
        return Accepted(request.request_id)
