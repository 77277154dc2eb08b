"""An engine client whose engine runs in a child process."""

import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future

from tandem.devices.host_threads import wait_calmly
from tandem.engine.clients.channel import Channel, pack
from tandem.engine.clients.client import EngineClient, Stats
from tandem.engine.clients.mailbox import Mailbox
from tandem.engine.clients.pending_stats import PendingStats
from tandem.engine.clients.protocol import pack_request, unpack_error, unpack_event
from tandem.engine.clients.registry import RequestRegistry
from tandem.spec.config import EngineConfig
from tandem.spec.errors import EngineDeadError, RequestError
from tandem.spec.progress import Progress, no_progress
from tandem.spec.request import EngineRequest

_CLOSE_GRACE_S = 10.0


class ProcessClient(EngineClient):
    """Starts an engine process, waits until its model is loaded, and talks to it.

    They speak over a pair of connected Unix sockets that have no name in the file system, so
    nobody else can connect and nothing can be left behind.

    Args:
        factory: `module:function` that builds the core from a configuration and a progress
            callback, imported in the child.
        config: handed to `factory`.
        progress: called while the model loads, on the calling thread.

    Raises:
        TandemError: what the factory raised in the child, as the same class.
        EngineDeadError: the child ended while loading.
    """

    def __init__(
        self, factory: str, config: EngineConfig, progress: Progress = no_progress
    ) -> None:
        self._registry = RequestRegistry()
        self._pending_stats = PendingStats()
        self._process, self._channel = _spawn()
        self._reap = weakref.finalize(self, _stop, self._process, self._channel)
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        try:
            self._channel.send("start", factory, config.to_json())
            self._await_ready(progress)
        except BaseException:
            self._reap()
            raise
        self._threads = [
            threading.Thread(target=self._read, name="tandem-engine-reader", daemon=True),
            threading.Thread(target=self._write, name="tandem-engine-writer", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def submit(self, request: EngineRequest, mailbox: Mailbox | None = None) -> Mailbox:
        """See `EngineClient.submit`."""
        mailbox = mailbox or Mailbox()
        # Packed here, so that what cannot be expressed fails this request and nothing else.
        try:
            packed = pack("submit", pack_request(request))
        except (ValueError, OverflowError, TypeError) as error:
            raise RequestError(
                f"the request cannot be sent to the engine ({error}); check its numbers"
            ) from error
        self._registry.register(request.request_id, mailbox)
        self._outbox.put(packed)
        return mailbox

    def abort(self, request_id: str) -> None:
        """See `EngineClient.abort`."""
        if self._registry.abort(request_id):
            self._outbox.put(pack("abort", request_id))

    def abort_all(self) -> None:
        """See `EngineClient.abort_all`."""
        for request_id in self._registry.unfinished():
            self.abort(request_id)

    def request_stats(self) -> "Future[Stats]":
        """See `EngineClient.request_stats`."""
        number, future = self._pending_stats.open()
        self._outbox.put(pack("stats", number))
        return future

    def close(self) -> None:
        """See `EngineClient.close`."""
        self._die(EngineDeadError("the engine was closed"))
        self._outbox.put(pack("close"))
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_CLOSE_GRACE_S)
        self._reap()
        self._outbox.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    @property
    def death(self) -> EngineDeadError | None:
        """See `EngineClient.death`."""
        return self._registry.death

    def on_death(self, callback: Callable[[], None]) -> None:
        """See `EngineClient.on_death`."""
        self._registry.on_death(callback)

    def _await_ready(self, progress: Progress) -> None:
        while True:
            match self._channel.receive():
                case ("progress", what, done, total):
                    progress(what, done, total)
                case ("ready",):
                    return
                case ("failed", error):
                    raise unpack_error(error)
                case None:
                    raise EngineDeadError(_obituary(self._process, "while it loaded the model"))
                case other:
                    raise EngineDeadError(f"the engine process said {other[0]!r} while loading")

    def _read(self) -> None:
        while (message := self._channel.receive()) is not None:
            match message:
                case ("stats", number, stats):
                    self._pending_stats.answer(number, stats)
                case ("dead", error):
                    self._die(EngineDeadError(unpack_error(error).message))
                case _:
                    event = unpack_event(message)
                    if event is not None:
                        self._registry.deliver(event)
        # After an orderly end or a reported one, the reason is known and this changes nothing.
        self._die(EngineDeadError(_obituary(self._process, "while it served")))
        self._outbox.put(None)

    def _write(self) -> None:
        # A thread of its own, since a send waits while the child's buffer is full.
        while (packed := self._outbox.get()) is not None:
            try:
                self._channel.send_packed(packed)
            except OSError:
                return  # the reader finds out why

    def _die(self, error: EngineDeadError) -> None:
        self._registry.fail_all(error)
        self._pending_stats.fail_all(error)


def _spawn() -> "tuple[subprocess.Popen[bytes], Channel]":
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    wait_calmly(environment)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tandem.engine.clients.process", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            # Our standard output belongs to results.
            stdout=sys.stderr if _has_descriptor(sys.stderr) else subprocess.DEVNULL,
            # Ctrl-C at the terminal is for us; we then close the child in order.
            start_new_session=True,
            env=environment,
        )
    return process, Channel(ours)


def _has_descriptor(stream: object) -> bool:
    try:
        stream.fileno()  # pyright: ignore[reportAttributeAccessIssue]
    except (AttributeError, OSError, ValueError):
        return False
    return True


def _stop(process: "subprocess.Popen[bytes]", channel: Channel) -> None:
    """Make sure that the child is gone: it ends by itself when the channel closes."""
    channel.close()
    process.terminate()
    try:
        process.wait(_CLOSE_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _obituary(process: "subprocess.Popen[bytes]", when: str) -> str:
    """Why the child ended, from its exit status; its socket is closed already."""
    try:
        status = process.wait(_CLOSE_GRACE_S)
    except subprocess.TimeoutExpired:
        return f"the engine process closed its connection {when}; restart"
    if status >= 0:
        return f"the engine process ended with status {status} {when}; see the log above, restart"
    name = signal.Signals(-status).name
    hint = " (often the kernel, out of memory: lower --cpu-memory)" if name == "SIGKILL" else ""
    return f"the engine process was killed by {name} {when}{hint}; restart"
