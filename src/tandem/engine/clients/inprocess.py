"""An engine client whose engine runs on a thread of this process."""

import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future

from tandem.engine.clients.client import EngineClient, Stats
from tandem.engine.clients.driver import Abort, Close, Core, EngineDriver, ReadStats, Submit
from tandem.engine.clients.mailbox import Mailbox
from tandem.engine.clients.pending_stats import PendingStats
from tandem.engine.clients.registry import RequestRegistry
from tandem.spec.errors import EngineDeadError
from tandem.spec.progress import Progress, no_progress
from tandem.spec.request import EngineRequest


class InProcessClient(EngineClient):
    """Builds and drives a core on its own thread.

    Args:
        build_core: makes the core from a progress callback; called on the engine's thread, since
            device contexts belong to threads. An interrupt of the caller ends it at its next
            report.
        progress: called while the core is made, on the engine's thread.

    Raises:
        Exception: whatever `build_core` raises.
    """

    def __init__(
        self, build_core: Callable[[Progress], Core], progress: Progress = no_progress
    ) -> None:
        self._registry = RequestRegistry()
        self._pending_stats = PendingStats()
        self._progress = progress
        self._unwanted = threading.Event()
        ready: Future[EngineDriver] = Future()
        # A daemon, so that an engine which nobody closed cannot keep the process alive.
        self._thread = threading.Thread(
            target=self._run, args=(build_core, ready), name="tandem-engine", daemon=True
        )
        try:
            _undisturbed(self._thread.start)
            self._driver = ready.result()
        except BaseException:
            _undisturbed(lambda: self._abandon(ready))
            raise

    def _abandon(self, ready: "Future[EngineDriver]") -> None:
        """End the load; at once if it has failed, else at its next report."""
        self._unwanted.set()
        ready.add_done_callback(_close_if_built)
        if self._thread.ident is not None:
            self._thread.join()

    def _report(self, what: str, done: int, total: int) -> None:
        if self._unwanted.is_set():
            raise EngineDeadError("loading was interrupted")
        self._progress(what, done, total)

    def _run(self, build_core: Callable[[Progress], Core], ready: "Future[EngineDriver]") -> None:
        try:
            driver = EngineDriver(build_core(self._report), self._registry.deliver)
        except BaseException as error:  # noqa: BLE001 (raised on the caller's thread)
            ready.set_exception(error)
            return
        ready.set_result(driver)
        death = EngineDeadError("the engine was closed")
        try:
            driver.run()
        except EngineDeadError as error:
            death = error
        self._registry.fail_all(death)
        self._pending_stats.fail_all(death)

    def submit(self, request: EngineRequest, mailbox: Mailbox | None = None) -> Mailbox:
        """See `EngineClient.submit`."""
        mailbox = mailbox or Mailbox()
        self._registry.register(request.request_id, mailbox)
        self._driver.post(Submit(request))
        return mailbox

    def abort(self, request_id: str) -> None:
        """See `EngineClient.abort`."""
        if self._registry.abort(request_id):
            self._driver.post(Abort(request_id))

    def abort_all(self) -> None:
        """See `EngineClient.abort_all`."""
        for request_id in self._registry.unfinished():
            self.abort(request_id)

    def request_stats(self) -> "Future[Stats]":
        """See `EngineClient.request_stats`."""
        number, future = self._pending_stats.open()
        self._driver.post(ReadStats(lambda stats: self._pending_stats.answer(number, stats)))
        return future

    def close(self) -> None:
        """See `EngineClient.close`."""
        self._driver.post(Close())
        # The garbage collector may close a forgotten engine on any thread, its own included.
        if threading.current_thread() is not self._thread:
            _undisturbed(self._thread.join)

    @property
    def death(self) -> EngineDeadError | None:
        """See `EngineClient.death`."""
        return self._registry.death

    def on_death(self, callback: Callable[[], None]) -> None:
        """See `EngineClient.on_death`."""
        self._registry.on_death(callback)


def _undisturbed(wait: Callable[[], None]) -> None:
    """Wait to the end; an interrupt that comes meanwhile is delivered afterwards.

    The interpreter cannot end in peace beside a thread that computes, nor may locks be left while
    they are taken.
    """
    if threading.current_thread() is not threading.main_thread():
        wait()  # interrupts go to the main thread
        return
    interrupts: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        wait()
    finally:
        signal.signal(signal.SIGINT, handler or signal.SIG_DFL)
    if interrupts:
        signal.raise_signal(signal.SIGINT)


def _close_if_built(ready: "Future[EngineDriver]") -> None:
    if ready.exception() is None:
        ready.result().post(Close())
