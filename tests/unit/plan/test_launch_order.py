"""One thread launches a layer's copies, too: in an order in which no thread waits for ever."""

from collections.abc import Mapping
from itertools import product

import pytest

from tandem.plan.launch_order import by_one_thread, by_own_threads
from tandem.plan.op_runs import OpRun, op_runs
from tandem.plan.program import LaneShape, OpKind, Part, ProgramTemplate, Queue
from tandem.plan.sweep_layers import StreamedLayers, SweepLayers
from tandem.plan.templates import sampling_template, sweep_template, transfer_template
from tandem.spec.tier import Tier

BOTH, ALONE = LaneShape(host=True), LaneShape()
LEAVES = LaneShape(suspends=True, host=True)
COHORTS = [
    LaneShape(cursor=cursor, suspends=suspends, device=device, host=True, guarded=guarded)
    for cursor, suspends, device, guarded in product((0, 2), (True, False), (True, False), (True,))
]
BESIDE = LaneShape(cursor=1, suspends=True, device=False, host=True, beside=0)
LANES = [
    (ALONE,), (BOTH,), (BOTH, ALONE), (LEAVES, BOTH), (BOTH, BESIDE), (BESIDE, BOTH),
    *product([BOTH], COHORTS), *product(COHORTS, [BOTH]),
    *product(COHORTS[:2], COHORTS[2:], [BOTH]),
]  # fmt: skip
TEMPLATES = [
    *(sweep_template(4, lanes) for lanes in LANES),
    sweep_template(6, (BOTH, ALONE), SweepLayers(StreamedLayers((0, 1, 2, 3)), on_cpu=(5,))),
    sweep_template(4, (BOTH,), SweepLayers(mlp_on_cpu=(1, 2))),
    sweep_template(4, (BOTH,), SweepLayers(on_cpu=(0, 1, 2, 3))),
    sampling_template(3),
    transfer_template((Tier.DEVICE, Tier.HOST)),
]


def named(run: OpRun) -> str:
    op = run.first
    return f"{op.queue.value} {op.kind.value if op.part is Part.NONE else op.part.value}"


def test_a_hybrid_layer_is_launched_by_one_thread_and_the_cpu_is_waited_for_last() -> None:
    template = sweep_template(2, (BOTH,))
    ordered = by_one_thread(template, op_runs(template, frozenset({Queue.D2H})))
    assert [named(run) for thread, run in ordered if thread is Queue.ACCEL] == [
        "accel embed", "d2h qkv", "accel append", "h2d partial",
        "accel merge", "d2h qkv", "accel append", "h2d partial",
        "accel merge", "accel head",
    ]  # fmt: skip
    assert {named(run) for thread, run in ordered if thread is not Queue.ACCEL} == {"cpu append"}


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("template", TEMPLATES, ids=range(len(TEMPLATES)))
def test_every_thread_comes_to_its_end_and_queues_keep_their_order(
    template: ProgramTemplate, single: bool
) -> None:
    """Each thread goes on as soon as its next run may."""
    runs = op_runs(template, single=single)
    for ordered in (by_one_thread(template, runs), by_own_threads(runs)):
        threads: dict[Queue, list[OpRun]] = {}
        for thread, run in ordered:
            threads.setdefault(thread, []).append(run)
        launched = dict.fromkeys(Queue, 0)
        while movable := [each for each in threads.values() if each and _may(each[0], launched)]:
            last = movable[0].pop(0).last
            launched[last.queue] = last.ordinal
        assert launched == dict.fromkeys(Queue, 0) | dict(template.counts)


def _may(run: OpRun, launched: Mapping[Queue, int]) -> bool:
    follows = launched[run.first.queue] == run.first.ordinal - 1
    return follows and all(launched[wait.queue] >= wait.ordinal for wait in run.waits)


@pytest.mark.parametrize("template", TEMPLATES, ids=range(len(TEMPLATES)))
def test_joins_and_what_may_block_stay_with_their_queue_s_thread(template: ProgramTemplate) -> None:
    for thread, run in by_one_thread(template, op_runs(template)):
        first = run.first
        if thread is not first.queue:
            assert thread is Queue.ACCEL
            assert first.kind is OpKind.COPY
            assert first.joins is None
            assert first.part in (Part.QKV, Part.TOKENS, Part.PARTIAL)
