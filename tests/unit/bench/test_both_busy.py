"""How long the CPU and the link work at once, of intervals whose overlaps are known."""

from types import SimpleNamespace
from typing import cast

import pytest

from tandem.bench.offline.both_busy import BothBusy
from tandem.plan.executed_op import ExecutedOp
from tandem.plan.program import Queue


def told(queue: Queue, start_s: float, end_s: float) -> ExecutedOp:
    ran = SimpleNamespace(op=SimpleNamespace(queue=queue), start_s=start_s, end_s=end_s)
    return cast("ExecutedOp", ran)


def busy(passes: list[tuple[float, float]]) -> BothBusy:
    found = BothBusy(passes)
    for queue, start_s, end_s in (
        (Queue.WEIGHTS, 0.0, 4.0),
        (Queue.H2D, 3.0, 5.0),
        (Queue.D2H, 5.0, 9.0),  # from the accelerator
        (Queue.CPU, 6.0, 8.0),
        (Queue.CPU, 1.0, 2.0),
        (Queue.CPU, 3.5, 5.5),
        (Queue.H2D, 7.5, 7.75),
    ):
        found.executed(told(queue, start_s, end_s))
    return found


def test_two_queues_of_the_link_count_once() -> None:
    found = busy([(0.0, 5.25), (5.25, 9.0)])
    assert found.link_s == pytest.approx(5.25)
    assert found.both_s == pytest.approx(1.0 + 1.5 + 0.25)


def test_what_lies_outside_passes_does_not_count() -> None:
    found = busy([(1.5, 4.0), (7.625, 20.0)])
    assert found.link_s == pytest.approx(2.5 + 0.125)
    assert found.both_s == pytest.approx(0.5 + 0.5 + 0.125)
    assert busy([]).link_s == 0.0
