"""Who looks at the paced emulator's ledger, and when."""

from dataclasses import replace
from typing import Any, cast

import numpy as np
from tests.fakes.paced_program import NO_ROWS, op

from tandem.plan.program import (
    LaneShape,
    LaneSlot,
    OpKind,
    ProgramOp,
    ProgramTemplate,
    Queue,
    StepProgram,
)
from tandem.runtime.paced.executor import PacedExecutor
from tandem.runtime.paced.gauges import Gauges
from tandem.runtime.paced.host import Aliasing
from tandem.runtime.paced.ledger import Entry
from tandem.runtime.paced.pool import TaskSource
from tandem.runtime.paced.virtual import VirtualClock

COPY_S = 2.0
ONE_ROW = replace(
    NO_ROWS,
    rows=np.zeros(1, dtype=np.int32),
    token_ids=np.zeros(1, dtype=np.int64),
    token_rows=np.zeros(1, dtype=np.int64),
    positions=np.zeros(1, dtype=np.int32),
)


class Costs:
    """Every copy takes as long."""

    def prepare(self, program: StepProgram, *, skip: bool) -> tuple[object, ...]:
        return ()

    def layer_kind(self, layer: int) -> int:
        return layer

    def cost_s(self, entered: object, operation: ProgramOp, active: tuple[int, ...]) -> float:
        return COPY_S

    def moved_bytes(self, entry: Entry) -> float:
        return 1.0

    def has_work(self, entry: Entry) -> bool:
        return True


class SleepingPool:
    """Is woken, and looks when it is told to."""

    def __init__(self) -> None:
        self.num_woken = 0

    def start(self, source: TaskSource) -> None:
        self.source = source

    def wake(self) -> None:
        self.num_woken += 1

    def close(self) -> None:
        pass


def executor_of(pool: SleepingPool, clock: VirtualClock) -> PacedExecutor:
    gauges = Gauges(Aliasing(0, 1, 8, 1), contention=True)
    return PacedExecutor(cast("Any", Costs()), cast("Any", None), gauges, pool, clock, 0.0, 1e9)


def two_copies_and_attention(step: int) -> StepProgram:
    """When the CPU can begin is foreseen only once the first copy has ended."""
    attend = op(Queue.CPU, 1, (Queue.D2H, 2), kind=OpKind.ATTEND)
    operations = (op(Queue.D2H, 1), op(Queue.D2H, 2), attend)
    counts = ((Queue.D2H, 2), (Queue.CPU, 1))
    template = ProgramTemplate("copies", (LaneShape(),), operations, counts)
    return StepProgram(step, template, (LaneSlot(ONE_ROW, 0, 0),))


def test_who_sleeps_is_woken_where_there_is_something_to_look_at_sooner() -> None:
    """The scheduler's thread may be busy when the copy ends: then nobody else looks."""
    pool, clock = SleepingPool(), VirtualClock()
    executor = executor_of(pool, clock)
    assert pool.source.look() is None
    executor.submit(two_copies_and_attention(1))
    assert pool.num_woken == 1
    assert pool.source.take_task(ahead=True) is None
    assert pool.source.look() == COPY_S
    executor.submit(two_copies_and_attention(2))
    assert pool.num_woken == 1  # it looks then in any case
    clock.wait(COPY_S)
    pool.source.look()
    task = pool.source.take_task(ahead=True)
    assert task is not None
    assert task.not_before_s == 2 * COPY_S
