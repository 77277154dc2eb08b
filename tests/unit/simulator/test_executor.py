"""Joins, launches and the trace: the queues beneath the executor."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from tests.unit.simulator.setups import CASES, planned, serve, workload

from tandem.planner.fluid.groups import QUEUES, Group, Schedule
from tandem.planner.fluid.queues import (
    ACCEL,
    CPU,
    H2D,
    NEVER,
    FluidQueues,
    Join,
    Span,
    Submission,
    Work,
)
from tandem.simulator.timeline import Timeline
from tandem.spec.errors import ConfigError

LANE = 1


def submission(groups: list[Group], works: list[Work], **more: object) -> Submission:
    def price(left_out: frozenset[int]) -> list[Work]:
        return [Work(0.0) if LANE in left_out and g.joins == LANE else w
                for g, w in zip(groups, works, strict=True)]  # fmt: skip

    everything = frozenset(range(len(groups)))
    schedule = Schedule((), tuple(groups))
    return Submission(schedule, price, reported=everything, **more)  # pyright: ignore[reportArgumentType]


def ends(queues: FluidQueues) -> list[tuple[float, int]]:
    found: list[tuple[float, int]] = []
    while ended := queues.advance():
        found += [(queues.now_s, group) for _, group, _ in ended]
    return found


@pytest.mark.parametrize(
    ("max_wait_s", "attention_s", "joined_s", "left_out"),
    [
        (0.5, 1.4, 1.4 + 0.25, False),  # ready while the sweep waits for it
        (0.5, 1.0, 1.0 + 0.25, False),  # ready before the sweep has come so far
        (0.5, 1.6, 1.5, True),  # the wait began at 1.0
        (None, 9.0, 9.0 + 0.25, False),
    ],
)
def test_a_join_waits_so_long_and_is_then_left_out(
    max_wait_s: float | None, attention_s: float, joined_s: float, left_out: bool
) -> None:
    queues = FluidQueues(1.0)
    queues.submit(submission([Group(CPU, 1, (), ())], [Work(attention_s)]))
    sweep = submission(
        [
            Group(ACCEL, 1, (), ()),
            Group(H2D, 1, (), ((ACCEL, 1),), joins=LANE),
            Group(ACCEL, 2, (), ((H2D, 1),)),
        ],
        [Work(1.0), Work(0.25), Work(1.0)],
        joins={1: Join(LANE, 1, max_wait_s)},
    )
    queues.submit(sweep)
    found = {group: time_s for time_s, group in ends(queues)[::-1]}
    assert found[1] == pytest.approx(joined_s)
    assert found[2] == pytest.approx(joined_s + 1.0)
    assert sweep.left_out == (frozenset({LANE}) if left_out else frozenset())


def test_nothing_starts_before_it_is_launched() -> None:
    queues = FluidQueues(1.0)
    queues.submit(submission([Group(ACCEL, 1, (), ())], [Work(1.0)], not_before_s=0.5))
    assert queues.advance(1.25) == []
    # an operation that is submitted later does not change what has begun
    queues.submit(submission([Group(ACCEL, 1, (), ())], [Work(1.0)], not_before_s=4.0))
    assert ends(queues) == [(1.5, 0), (5.0, 0)]
    assert queues.advance(NEVER) == []
    assert queues.busy_s[ACCEL] == pytest.approx(2.0)


def test_the_share_that_is_hidden_is_what_runs_beside_the_accelerator() -> None:
    queues = FluidQueues(1.0)
    queues.submit(
        submission([Group(ACCEL, 1, (), ()), Group(CPU, 1, (), ())], [Work(1.0), Work(4.0)])
    )
    ends(queues)
    assert queues.hidden_s == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["streamed", "ride-along", "rendezvous"])
def test_a_trace_has_a_row_per_queue_and_adds_up_to_what_was_busy(
    name: str, tmp_path: Path
) -> None:
    spans: list[Span] = []
    timeline = Timeline(tmp_path / "trace.json")

    def keep(span: Span) -> None:
        spans.append(span)
        timeline.add(span)

    served = serve(planned(CASES[name]), workload(requests=4), on_span=keep)
    timeline.close()
    events = json.loads((tmp_path / "trace.json").read_text("utf-8"))
    rows = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert rows == {i: queue.value for i, queue in enumerate(QUEUES)}
    complete = [event for event in events if event["ph"] == "X"]
    assert len(complete) == len(spans)
    for queue in (ACCEL, CPU):
        mine = [span for span in spans if span.queue == queue]
        assert all(a.end_s <= b.start_s for a, b in pairwise(mine))
        busy_s = sum(span.end_s - span.start_s for span in mine)
        assert busy_s == pytest.approx(served.machine.executor.queues.busy_s[queue])
    names = {event["name"] for event in complete}
    assert any("attend" in name for name in names)
    assert ("load" in names) == (name == "streamed")
    with pytest.raises(ConfigError, match="cannot write"):
        Timeline(tmp_path)
