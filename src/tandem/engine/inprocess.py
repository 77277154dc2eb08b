"""An engine client whose engine runs on a thread of this process."""

import threading
from collections.abc import Callable
from concurrent.futures import Future

from tandem.engine.client import EngineClient, Stats
from tandem.engine.driver import Abort, Close, Core, EngineDriver, ReadStats, Submit
from tandem.engine.mailbox import Mailbox
from tandem.engine.pending_stats import PendingStats
from tandem.engine.registry import RequestRegistry
from tandem.spec.errors import EngineDeadError
from tandem.spec.request import EngineRequest


class InProcessClient(EngineClient):
    """Builds and drives a core on its own thread.

    Args:
        build_core: makes the core; called on the engine's thread, since device contexts belong
            to threads.

    Raises:
        Exception: whatever `build_core` raises.
    """

    def __init__(self, build_core: Callable[[], Core]) -> None:
        self._registry = RequestRegistry()
        self._pending_stats = PendingStats()
        ready: Future[EngineDriver] = Future()
        # A daemon, so that an interrupt during a long load can end the process.
        self._thread = threading.Thread(
            target=self._run, args=(build_core, ready), name="tandem-engine", daemon=True
        )
        self._thread.start()
        self._driver = ready.result()

    def _run(self, build_core: Callable[[], Core], ready: "Future[EngineDriver]") -> None:
        try:
            driver = EngineDriver(build_core(), self._registry.deliver)
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
            self._thread.join()

    @property
    def death(self) -> EngineDeadError | None:
        """See `EngineClient.death`."""
        return self._registry.death
