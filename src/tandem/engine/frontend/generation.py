"""Follows the samples of one call from submission to their ends."""

from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from dataclasses import dataclass

from tandem.engine.clients.client import EngineClient
from tandem.engine.clients.mailbox import Accepted, Event, Failed, Mailbox
from tandem.engine.frontend.assembler import OutputAssembler
from tandem.engine.frontend.results import Delta
from tandem.spec.errors import TandemError
from tandem.spec.request import EngineRequest, FinishReason, RequestOutput


@dataclass(frozen=True, slots=True)
class Sample:
    """One engine request and what turns its outputs into text."""

    request: EngineRequest
    assembler: OutputAssembler


class Generation:
    """The running samples of one call. Iterate over it, in a thread or on an event loop, once.

    Whenever the iteration ends (exhausted, closed, cancelled, or by an error of one sample) all
    samples that still run are aborted.

    Raises, while iterating:
        TandemError: a sample was refused or failed, or the engine died.
    """

    def __init__(self, client: EngineClient, samples: Sequence[Sample]) -> None:
        self._client = client
        self._mailbox = Mailbox()
        self._running: dict[str, OutputAssembler] = {}
        self._undecided: set[str] = set()
        self._backlog: list[Event] = []
        try:
            for sample in samples:
                client.submit(sample.request, self._mailbox)
                self._running[sample.request.request_id] = sample.assembler
                self._undecided.add(sample.request.request_id)
        except TandemError:
            self.abort()
            raise

    def abort(self) -> None:
        """End all samples that still run and free what they hold; may be repeated."""
        running, self._running = self._running, {}
        for request_id in running:
            self._client.abort(request_id)

    async def accepted(self) -> None:
        """Wait until the engine has taken in every sample.

        Raises:
            TandemError: it refused one; the others are aborted.
        """
        try:
            while self._undecided:
                events = await self._mailbox.take_async()
                self._backlog.extend(events)
                for event in events:
                    self._undecided.discard(event.request_id)
                    if isinstance(event, Failed):
                        raise event.error
        except BaseException:
            self.abort()
            raise

    def __iter__(self) -> Generator[Delta, None, None]:
        """Deltas of all samples as they come."""
        try:
            yield from self._deltas(self._take_backlog())
            while self._running:
                yield from self._deltas(self._mailbox.take())
        finally:
            self.abort()

    async def __aiter__(self) -> AsyncGenerator[Delta, None]:
        """As `__iter__`, without blocking the event loop."""
        try:
            for delta in self._deltas(self._take_backlog()):
                yield delta
            while self._running:
                for delta in self._deltas(await self._mailbox.take_async()):
                    yield delta
        finally:
            self.abort()

    def _take_backlog(self) -> list[Event]:
        backlog, self._backlog = self._backlog, []
        return backlog

    def _deltas(self, events: list[Event]) -> Iterator[Delta]:
        for event in events:
            assembler = self._running.get(event.request_id)
            if assembler is None or isinstance(event, Accepted):
                continue
            if isinstance(event, Failed):
                raise event.error
            delta = assembler.feed(_checked(event))
            if delta.finish_reason is not None:
                del self._running[event.request_id]
                if event.finish_reason is None:  # a stop string: the engine does not know yet
                    self._client.abort(event.request_id)
            yield delta


def _checked(output: RequestOutput) -> RequestOutput:
    if output.finish_reason is FinishReason.ERROR:
        raise TandemError(output.error or "the engine failed this request; see the log")
    return output
