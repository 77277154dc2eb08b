"""Virtual time against the programs' own meaning, and against sums done by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import scaled

from tandem.plan.program import LaneShape, OpKind, Part, ProgramOp, Queue
from tandem.plan.sweep_layers import SweepLayers
from tandem.plan.templates import sampling_template, sweep_template
from tandem.plan.weights import StreamedLayers
from tandem.planner.demand import Demand
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.fluid.grouping import grouped
from tandem.planner.fluid.groups import Schedule
from tandem.planner.fluid.priced_sweep import PricedSweep
from tandem.planner.fluid.sweep_operations import sweep_operations
from tandem.planner.fluid.virtual_time import SweepTime, repeated_sweep, steady_sweep

LAYERS = 4
BOTH = LaneShape(device=True, host=True)
DEVICE = LaneShape(device=True)
Key = tuple[OpKind, Queue, Part]


def key(op: ProgramOp) -> Key:
    return op.kind, op.queue, op.part


def schedule(lane: LaneShape, layers: SweepLayers) -> Schedule:
    return grouped(sweep_operations(LAYERS, (lane,), layers), (0,) * LAYERS)


def priced(made: Schedule, demands: dict[Key, Demand]) -> PricedSweep:
    return PricedSweep(made, tuple(demands.get(key(op), Demand(0.0)) for op in made.ops))


def end_times(lane: LaneShape, layers: SweepLayers, times: dict[Key, float]) -> list[float]:
    """When each of some sweeps ends, straight from the templates' signals: in queues that are in
    order, an operation starts when the one before it and all that it waits for have ended.
    """
    ends: dict[Queue, list[float]] = {queue: [] for queue in Queue}
    sweeps: list[float] = []
    for _ in range(8):
        for template in (
            sweep_template(LAYERS, (lane,), layers),
            sampling_template(1),
        ):
            base = {queue: len(ends[queue]) for queue in Queue}
            for op in template.ops:
                start = max([0.0, *ends[op.queue][-1:]])
                for wait in op.waits:
                    index = base[wait.queue] + wait.ordinal
                    start = max(start, ends[wait.queue][index - 1] if index > 0 else 0.0)
                ends[op.queue].append(start + times.get(key(op), 0.0))
        sweeps.append(ends[Queue.ACCEL][-1])
    return sweeps


PLACED = [
    SweepLayers(),
    SweepLayers(StreamedLayers((1, 3))),
    SweepLayers(StreamedLayers((0, 1, 2, 3))),
    SweepLayers(StreamedLayers((0, 1, 2, 3)), on_cpu=(2, 3)),
    SweepLayers(StreamedLayers((0, 1, 2, 3), on_disk=(0, 1, 3))),
    SweepLayers(StreamedLayers((0, 1, 2, 3), on_disk=(0, 1)), on_cpu=(2, 3)),
    SweepLayers(on_cpu=(1, 3)),
    SweepLayers(StreamedLayers((0, 2)), on_cpu=(1,)),
    SweepLayers(on_cpu=(0, 1, 2, 3)),
    SweepLayers(mlp_on_cpu=(0, 2, 3)),
    SweepLayers(StreamedLayers((0, 1, 2, 3), mlps=(0, 1, 2, 3))),
    SweepLayers(StreamedLayers((0, 1, 2, 3), mlps=(0, 1, 2, 3)), mlp_on_cpu=(2, 3)),
]
KEYS: list[Key] = sorted(
    {
        key(op)
        for template in (
            *(sweep_template(LAYERS, (BOTH,), layers) for layers in PLACED),
            sampling_template(1),
        )
        for op in template.ops
    }
)


@given(
    times=st.fixed_dictionaries({name: st.floats(0.001, 2.0) for name in KEYS}),
    lane=st.sampled_from([BOTH, DEVICE]),
    layers=st.sampled_from(PLACED),
)
def test_without_sharing_a_sweep_takes_what_its_program_says(
    times: dict[Key, float], lane: LaneShape, layers: SweepLayers
) -> None:
    demands = {name: Demand(seconds) for name, seconds in times.items()}
    sweep = priced(schedule(lane, layers), demands)
    ends = end_times(lane, layers, times)
    found = steady_sweep([sweep] * 8, dram_bytes_per_s=1.0)
    assert found.period_s == pytest.approx(ends[-1] - ends[-2])
    # two are enough to see how long one of many takes
    assert steady_sweep([sweep] * 2, 1.0).period_s == pytest.approx(found.period_s)


LONG = 16
ELSEWHERE = [
    *(Elsewhere(count).lending(lent) for count in range(3, LONG + 1) for lent in (0, 1, 2, 7)),
    *(Elsewhere(0, count, how) for count in range(LONG + 1) for how in ("cpu", "cpu-mlp")),
]


@settings(max_examples=scaled(30))
@given(
    times=st.fixed_dictionaries({name: st.floats(0.001, 2.0) for name in KEYS}),
    lane=st.sampled_from([BOTH, DEVICE]),
    elsewhere=st.sampled_from(ELSEWHERE),
)
def test_a_first_sweep_lived_through_in_part_leaves_the_queues_as_they_will_be(
    times: dict[Key, float], lane: LaneShape, elsewhere: Elsewhere
) -> None:
    ops = sweep_operations(LONG, (lane,), elsewhere.sweep(LONG, prompts=False))
    demands = {name: Demand(seconds) for name, seconds in times.items()}
    sweep = priced(grouped(ops, (0,) * LONG), demands)
    assert steady_sweep([sweep] * 2, 1.0).period_s == pytest.approx(
        steady_sweep([sweep] * 5, 1.0).period_s
    )


@settings(max_examples=scaled(60))
@given(data=st.data(), lane=st.sampled_from([BOTH, DEVICE]), elsewhere=st.sampled_from(ELSEWHERE))
def test_a_sweep_that_follows_itself_takes_as_long_as_one_of_many(
    data: st.DataObject, lane: LaneShape, elsewhere: Elsewhere
) -> None:
    ops = sweep_operations(LONG, (lane,), elsewhere.sweep(LONG, prompts=False))
    demands: dict[Key, Demand] = {}
    for name in sorted({key(op) for op in ops}):
        seconds = data.draw(st.floats(0.001, 2.0))
        drawn = 0.0 if name[1] is Queue.ACCEL else data.draw(st.floats(0.0, 15.0))
        link = name[1] in (Queue.H2D, Queue.WEIGHTS)
        demands[name] = Demand(seconds, drawn, data.draw(st.floats(0.1, 1.0)) if link else 0.0)
    sweep = priced(grouped(ops, (0,) * LONG), demands)
    found, many = repeated_sweep(sweep, 10.0), steady_sweep([sweep] * 24, 10.0, cycle=12)
    assert found.period_s == pytest.approx(many.period_s, rel=0.01)
    assert found.accelerator_s == pytest.approx(many.accelerator_s)
    assert found.dram_bytes == pytest.approx(many.dram_bytes, rel=0.01)


PRE: Key = (OpKind.STAGE, Queue.ACCEL, Part.PRE)
ATTEND: Key = (OpKind.ATTEND, Queue.CPU, Part.NONE)
LOAD: Key = (OpKind.LOAD, Queue.WEIGHTS, Part.NONE)
UP: Key = (OpKind.COPY, Queue.H2D, Part.PARTIAL)
STREAMED = SweepLayers(StreamedLayers((0, 1, 2, 3)))


def run(demands: dict[Key, Demand], lane: LaneShape = BOTH) -> SweepTime:
    return steady_sweep([priced(schedule(lane, STREAMED), demands)] * 3, dram_bytes_per_s=10.0)


def test_loads_and_attention_share_the_host_s_memory() -> None:
    alone = run({ATTEND: Demand(1.0, 10.0), LOAD: Demand(0.01)})
    assert alone.period_s == pytest.approx(LAYERS * 1.0, rel=0.02)
    # 10 bytes of attention and 10 of a load per layer, at 10 bytes/s, always in each other's way
    both = run({ATTEND: Demand(1.0, 10.0), LOAD: Demand(1.0, 10.0)})
    assert both.period_s == pytest.approx(LAYERS * 2.0)
    assert both.dram_bytes == pytest.approx(LAYERS * 20)
    # half as greedy, they fit side by side
    fit = run({ATTEND: Demand(1.0, 5.0), LOAD: Demand(1.0, 5.0)})
    assert fit.period_s == pytest.approx(LAYERS * 1.0)


def test_small_copies_go_before_loads_on_the_link() -> None:
    copies = {UP: Demand(0.5, 0.0, 1.0), LOAD: Demand(1.0, 0.0, 1.0)}
    found = run(copies)
    assert found.period_s == pytest.approx(LAYERS * 1.5)
    assert found.h2d_s == pytest.approx(LAYERS * 1.5)
    halves = run({UP: Demand(0.5, 0.0, 0.5), LOAD: Demand(1.0, 0.0, 1.0)})
    assert halves.period_s == pytest.approx(LAYERS * 1.25)


def test_maths_hides_behind_loads() -> None:
    found = run({PRE: Demand(0.4), LOAD: Demand(1.0, 0.0, 1.0)}, DEVICE)
    assert found.period_s == pytest.approx(LAYERS * 1.0)
    assert found.accelerator_s == pytest.approx(LAYERS * 0.4)
    slow = run({PRE: Demand(1.4), LOAD: Demand(1.0, 0.0, 1.0)}, DEVICE)
    assert slow.period_s == pytest.approx(LAYERS * 1.4)
