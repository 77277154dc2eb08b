"""The engine in a process of its own: `python -m tandem.engine.clients.process FD`.

FD is an inherited, connected Unix socket. The parent's death shows as its end of the socket
closing, whatever killed it; the engine then ends within `_ORPHAN_GRACE_S`.
"""

import contextlib
import importlib
import logging
import os
import signal
import socket
import sys
import threading
from typing import Any

from tandem.engine.clients.channel import Channel, Message
from tandem.engine.clients.driver import Abort, Close, Core, EngineDriver, ReadStats, Submit
from tandem.engine.clients.protocol import pack_error, pack_event, unpack_request
from tandem.engine.log_lines import log_lines
from tandem.spec.config import EngineConfig
from tandem.spec.errors import EngineDeadError, TandemError

_LOG = logging.getLogger(__name__)

# How long a step may go on after the parent's death before the process ends without it.
_ORPHAN_GRACE_S = 10.0


def main(argv: list[str]) -> int:
    """Serve the client at the other end of the socket; returns the exit status."""
    # SystemExit unwinds through the driver, which closes the core.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with log_lines():
        status = _run(argv)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the process ends as it is; nothing to unwind
    return status


def _run(argv: list[str]) -> int:
    channel = Channel(socket.socket(fileno=int(argv[1])))
    parent = _ParentWatch(channel)
    message = channel.receive()
    if message is None:
        return 1
    _, factory, config_json = message
    parent.start()
    try:
        core = _build(channel, factory, config_json)
    except TandemError as error:
        channel.send("failed", pack_error(error))
        return 1
    except Exception as error:  # noqa: BLE001 (raised in the client's process)
        _LOG.exception("the engine could not be built")
        channel.send("failed", pack_error(error))
        return 1
    return _serve(channel, parent, core)


def _build(channel: Channel, factory: str, config_json: str) -> Core:
    module, _, function = factory.partition(":")
    build = getattr(importlib.import_module(module), function)

    def report(what: str, done: int, total: int) -> None:
        channel.send("progress", what, done, total)

    return build(EngineConfig.from_json(config_json), report)


def _serve(channel: Channel, parent: "_ParentWatch", core: Core) -> int:
    driver = EngineDriver(core, lambda event: _tell(channel, *pack_event(event)))
    parent.attach(driver)
    channel.send("ready")
    try:
        driver.run()
    except EngineDeadError as error:
        if not parent.gone:
            channel.send("dead", pack_error(error))
        return 1
    finally:
        parent.detach()
    return 0


class _ParentWatch:
    """Reads what the parent says, on a thread, until it is gone."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._driver: EngineDriver | None = None
        self._attached = threading.Event()
        self.gone = False

    def start(self) -> None:
        threading.Thread(target=self._run, name="tandem-parent-watch", daemon=True).start()

    def attach(self, driver: EngineDriver) -> None:
        """Pass what arrives on to `driver` from now on."""
        self._driver = driver
        self._attached.set()

    def detach(self) -> None:
        """Let go of the driver, which has ended: this thread outlives it, up to the exit."""
        self._driver = None

    def _run(self) -> None:
        while (message := self._channel.receive()) is not None:
            self._attached.wait()
            self._pass_on(message)
        self.gone = True
        driver = self._driver
        if driver is None:
            if not self._attached.is_set():
                os._exit(1)  # nobody waits for what is being loaded
            return
        driver.post(Close())
        orphan = threading.Timer(_ORPHAN_GRACE_S, os._exit, (1,))
        orphan.daemon = True
        orphan.start()

    def _pass_on(self, message: Message) -> None:
        driver = self._driver
        if driver is None:
            return
        match message:
            case ("submit", request):
                driver.post(Submit(unpack_request(request)))
            case ("abort", request_id):
                driver.post(Abort(request_id))
            case ("stats", number):
                driver.post(ReadStats(lambda stats: self._answer(number, stats)))
            case ("close",):
                driver.post(Close())
            case _:
                raise ValueError(f"unknown message {message[0]!r}")

    def _answer(self, number: int, stats: dict[str, Any]) -> None:
        _tell(self._channel, "stats", number, stats)


def _tell(channel: Channel, *message: object) -> None:
    """To a parent that may be gone: its watch ends the loop then, and nothing has failed here."""
    with contextlib.suppress(ConnectionError):
        channel.send(*message)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
