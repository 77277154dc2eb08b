"""An engine that is kept full: whoever ends is followed by the next request of the workload."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tandem.bench.online.requests import SteadyShapes, request_of
from tandem.spec.request import EngineRequest, RequestOutput
from tandem.spec.workload import RequestShape, Workload

QUEUE_DIVISOR = 4  # of the rows: as many requests wait, so that a free row never does


class LoopCore(Protocol):
    """What a loop asks of an engine."""

    def add_request(self, request: EngineRequest) -> None:
        """Take a request in."""
        ...

    def step(self) -> Sequence[RequestOutput]:
        """One iteration."""
        ...

    def close(self) -> None:
        """Drop all requests and free everything."""
        ...


@dataclass(slots=True)
class Running:
    """A request that has begun to emit.

    Attributes:
        left: tokens that it will still emit.
        emitted_at: number of the step that emitted its last one. gap: steps between its last two.
    """

    left: int
    emitted_at: int
    gap: int = 0


class ClosedLoop:
    """Adds requests, steps the engine, and keeps count of what it emits.

    Args:
        rows: that run at once, in the mean. most: that may. step_tokens: that a step computes at
            most.
        fast_forward: an emulator's, so that time stands still while rows are filled; None: it does
            not.

    Attributes:
        running: requests that have begun to emit, by id. ended: how many are done.
    """

    def __init__(
        self,
        core: LoopCore,
        workload: Workload,
        rows: int,
        most: int,
        step_tokens: int,
        fast_forward: Callable[[bool], None] | None = None,
    ) -> None:
        self._core, self._most = core, most + max(1, most // QUEUE_DIVISOR)
        self._fast_forward = fast_forward or (lambda on: None)
        self._shapes = SteadyShapes(workload.requests, rows, step_tokens)
        self._numbers = itertools.count()
        self._waiting: dict[str, int] = {}
        self.running: dict[str, Running] = {}
        self._step, self._last = 0, ""
        self.ended = 0

    def fill(self, settling_steps: int = 0) -> None:
        """All rows run, at progress that is spread evenly over their requests' lengths.

        Args:
            settling_steps: made after that, no time passing in them either.
        """
        self._fast_forward(True)
        while self._shapes.left:
            self.step()
        last = set(self._waiting)
        while not last.isdisjoint(self._waiting):
            self.step()
        for _ in range(settling_steps):
            self.step()
        self._fast_forward(False)

    def step(self) -> tuple[int, frozenset[str]]:
        """One iteration of the engine: tokens emitted, and by whom."""
        self._top_up()
        tokens, emitting = 0, set[str]()
        self._step += 1
        for output in self._core.step():
            count = len(output.token_ids)
            if count:
                tokens += count
                emitting.add(output.request_id)
                self._note(output.request_id, count)
        return tokens, frozenset(emitting)

    def close(self) -> None:
        """Drop all requests and free everything."""
        self._core.close()

    def _top_up(self) -> None:
        """Requests wait at any time. Until all rows run it is only those that are due."""
        if self._shapes.left:
            for shape in self._shapes.followers(self.ended):
                self._add(shape)
            if self._last not in self._waiting:
                for shape in self._shapes.batch():
                    self._last = self._add(shape)
            return
        while len(self._waiting) + len(self.running) < self._most:
            self._add(self._shapes.next())

    def _note(self, request_id: str, count: int) -> None:
        found = self.running.get(request_id)
        if found is None:
            found = Running(self._waiting.pop(request_id), self._step)
            self.running[request_id] = found
        found.left -= count
        found.gap = self._step - found.emitted_at
        found.emitted_at = self._step
        if found.left <= 0:
            del self.running[request_id]
            self.ended += 1

    def _add(self, shape: RequestShape) -> str:
        """One more request; its id."""
        number = next(self._numbers)
        self._core.add_request(request_of(number, shape))
        self._waiting[str(number)] = shape.generated_tokens
        return str(number)
