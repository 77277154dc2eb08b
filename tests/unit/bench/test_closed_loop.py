"""Requests that keep an engine full, from its first step on in a steady state."""

from collections.abc import Sequence
from statistics import mean

import pytest

from tandem.bench.online.closed_loop import ClosedLoop
from tandem.bench.online.requests import SteadyShapes
from tandem.spec.request import EngineRequest, RequestOutput
from tandem.spec.workload import LengthDistribution, RequestShape, drawn_workload

GENERATED = 100
WORKLOAD = drawn_workload(
    LengthDistribution("uniform", 1, 1), LengthDistribution("uniform", GENERATED, GENERATED), 10
)


class TwoSpeeds:
    """An engine with some places in which requests get a token in every step, and some in which
    they get one in every tenth; it begins with two requests a step, in the first free places.
    """

    def __init__(self, fast: int, slow: int) -> None:
        self._fast = fast
        self._places: list[list[int | str] | None] = [None] * (fast + slow)
        self._queue: list[EngineRequest] = []
        self._step = 0

    def add_request(self, request: EngineRequest) -> None:
        self._queue.append(request)

    def step(self) -> Sequence[RequestOutput]:
        self._step += 1
        emitted: list[RequestOutput] = []
        for _ in range(2):
            if not self._queue or None not in self._places:
                break
            request = self._queue.pop(0)
            left = request.sampling.max_tokens
            assert left is not None
            self._places[self._places.index(None)] = [request.request_id, left]
        for place, held in enumerate(self._places):
            if held is not None and (place < self._fast or self._step % 10 == 0):
                emitted.append(RequestOutput(str(held[0]), (1,)))
                held[1] = int(held[1]) - 1
                if not held[1]:
                    self._places[place] = None
        return emitted

    def close(self) -> None:
        self._queue.clear()

    def left(self) -> tuple[list[int], list[int]]:
        """Tokens that requests in fast and in slow places will still emit."""
        lefts = [0 if held is None else int(held[1]) for held in self._places]
        return lefts[: self._fast], lefts[self._fast :]


def test_first_requests_are_at_progress_spread_evenly() -> None:
    shapes = SteadyShapes((RequestShape(5, GENERATED),), 4, 1000)
    first = shapes.batch()
    assert sorted(shape.generated_tokens for shape in first) == [13, 38, 63, 88]
    assert all(shape.prompt_tokens + shape.generated_tokens == 105 for shape in first)
    assert shapes.left == 0
    assert shapes.next() == RequestShape(5, GENERATED)


def test_as_many_come_at_once_as_a_step_reads() -> None:
    shapes = SteadyShapes((RequestShape(5, GENERATED),), 100, 200)
    tokens = [shape.prompt_tokens for shape in shapes.batch()]
    assert sum(tokens) >= 200 > sum(tokens[:-1])
    assert shapes.left == 100 - len(tokens)


def test_who_follows_one_that_ended_is_at_its_beginning() -> None:
    shapes = SteadyShapes((RequestShape(5, GENERATED),), 4, 1)
    shapes.batch()
    assert shapes.followers(2) == [RequestShape(5, GENERATED)] * 2
    assert shapes.followers(2) == []
    assert shapes.left == 3


def test_requests_are_as_old_where_they_go_on_fast_as_where_they_go_on_slowly() -> None:
    engine = TwoSpeeds(fast=50, slow=150)
    loop = ClosedLoop(engine, WORKLOAD, rows=200, most=200, step_tokens=1)
    loop.fill()
    fast, slow = engine.left()
    assert sum(not left for left in (*fast, *slow)) < 5  # nearly all run at any time
    # in the mean half is left; the fast ones have emitted in 150 steps in which others came
    assert mean(fast) == pytest.approx(GENERATED / 2, rel=0.15)
    assert mean(slow) == pytest.approx(GENERATED / 2, rel=0.15)
