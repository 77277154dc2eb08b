"""What the validator accepts, and what it says of everything else."""

import itertools

import pytest
from tests.support.mutations import Mutation, drop, drop_joins, drop_waits, is_op, move

from tandem.plan.program import (
    BufferRef,
    LaneShape,
    OpKind,
    Part,
    ProgramOp,
    ProgramTemplate,
    Queue,
    SignalRef,
)
from tandem.plan.sweep_layers import SweepLayers
from tandem.plan.template_builder import WEIGHTS
from tandem.plan.templates import (
    HOST_PARTIAL,
    LOGITS,
    STATE,
    sampling_template,
    sweep_template,
    transfer_template,
)
from tandem.plan.validator import Placed, ProgramError, validate, validate_sequence
from tandem.plan.weights import StreamedLayers
from tandem.spec.tier import Tier

LAYERS = 3
MAIN = tuple(
    LaneShape(device=device, host=host)
    for device, host in ((True, False), (False, True), (True, True))
)
STARTS = tuple(LaneShape(suspends=True, host=True, device=device) for device in (True, False))
JOINS = tuple(
    LaneShape(cursor=cursor, suspends=True, host=True, device=device, guarded=guarded)
    for cursor, device, guarded in itertools.product(range(LAYERS), (True, False), (True, False))
)
START, JOIN_FIRST, JOIN_LAST = STARTS[1], JOINS[2], JOINS[-2]


def op(
    queue: Queue,
    ordinal: int,
    *,
    reads: tuple[str, ...] = (),
    writes: tuple[str, ...] = (),
    waits: tuple[SignalRef, ...] = (),
    lanes: tuple[int, ...] = (0,),
) -> ProgramOp:
    return ProgramOp(
        OpKind.STAGE, queue, Part.PRE, lanes, 0, ordinal, waits,
        tuple(BufferRef(name, 0) for name in reads),
        tuple(BufferRef(name, 0) for name in writes),
    )  # fmt: skip


def template(
    *ops: ProgramOp, counts: tuple[tuple[Queue, int], ...] | None = None
) -> ProgramTemplate:
    found = {q: sum(o.queue is q for o in ops) for q in dict.fromkeys(o.queue for o in ops)}
    return ProgramTemplate(
        "test", (LaneShape(),), ops, tuple(found.items()) if counts is None else counts
    )


@pytest.mark.parametrize("main", [(), *((lane,) for lane in MAIN)])
@pytest.mark.parametrize("cohorts", [(), *((lane,) for lane in (*STARTS, *JOINS))])
def test_every_shape_of_sweep_is_valid(
    main: tuple[LaneShape, ...], cohorts: tuple[LaneShape, ...]
) -> None:
    validate(sweep_template(LAYERS, main + cohorts))
    validate(sweep_template(LAYERS, main + cohorts + STARTS))


@pytest.mark.parametrize("streamed", [(0, 1), (0, 2), (1, 2)])
@pytest.mark.parametrize("lanes", [(), *((lane,) for lane in (*STARTS, *JOINS))])
def test_every_shape_of_sweep_is_valid_with_streamed_layers(
    streamed: tuple[int, ...], lanes: tuple[LaneShape, ...]
) -> None:
    stream = SweepLayers(StreamedLayers(streamed))
    main = Placed(sweep_template(LAYERS, (MAIN[2],), stream), (0,))
    other = Placed(sweep_template(LAYERS, lanes, stream), tuple(range(7, 7 + len(lanes))))
    validate_sequence([main, main, other, main])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (drop_waits(is_op(OpKind.STAGE, Part.PRE)), "may read .*weights"),
        (drop_waits(is_op(OpKind.LOAD)), "may overwrite .*weights"),
        (drop(is_op(OpKind.LOAD, layer=5)), "reads .*weights.* left it"),
    ],
)
def test_streaming_without_order_is_found(fault: Mutation, message: str) -> None:
    sweep = sweep_template(6, (MAIN[0],), SweepLayers(StreamedLayers((0, 2, 3, 5))))
    validate_sequence([Placed(sweep, (0,))] * 2)
    with pytest.raises(ProgramError, match=message):
        validate_sequence([Placed(fault(sweep), (0,))] * 2)


@pytest.mark.parametrize("lanes", [(), *((lane,) for lane in (*STARTS, *JOINS))])
def test_streamed_mlps_are_waited_for_where_they_are_used(lanes: tuple[LaneShape, ...]) -> None:
    circle = StreamedLayers((0, 1, 2, 3), mlps=(1, 2, 3))
    large, small = SweepLayers(circle), SweepLayers(circle, mlp_on_cpu=(2, 3))
    main, fewer = (sweep_template(4, (MAIN[0],), each) for each in (large, small))
    for each in (large, small):  # cohorts' sweeps may be either
        others = sweep_template(4, (MAIN[0], *lanes), each)
        placed = Placed(others, (0, *range(7, 7 + len(lanes))))
        validate_sequence([Placed(main, (0,)), placed, Placed(fewer, (0,)), Placed(main, (0,))])
    waiting = [op for op in main.ops if any(ref.name == WEIGHTS for ref in op.reads)]
    assert [(op.layer, op.part) for op in waiting] == [
        (0, Part.PRE), *((layer, Part.POST) for layer in range(4))
    ]  # fmt: skip
    loads = [(op.layer, op.part) for op in main.ops if op.kind is OpKind.LOAD]
    assert loads == [(2, Part.MLP), (3, Part.MLP), (0, Part.NONE), (1, Part.MLP)]
    early = drop_waits(is_op(OpKind.STAGE, Part.POST, layer=2))(main)
    with pytest.raises(ProgramError, match=r"may read .*weights"):
        validate_sequence([Placed(early, (0,))])


@pytest.mark.parametrize("on_disk", [(0,), (2, 5), (0, 3, 5), (0, 2, 3, 5)])
def test_reads_without_order_are_found(on_disk: tuple[int, ...]) -> None:
    sweep = sweep_template(6, (MAIN[0],), SweepLayers(StreamedLayers((0, 2, 3, 5), on_disk)))
    validate_sequence([Placed(sweep, (0,))] * 3)
    read = [op.layer for op in sweep.ops if op.kind is OpKind.READ]
    assert sorted(read) == list(on_disk)
    for fault, message in (
        (drop_waits(is_op(OpKind.LOAD), Queue.DISK), "may read .*host_weights"),
        (drop_waits(is_op(OpKind.READ)), "may overwrite .*host_weights"),
        (move(is_op(OpKind.READ), Queue.ACCEL), "host_weights, which accel cannot reach"),
    ):
        with pytest.raises(ProgramError, match=message):
            validate_sequence([Placed(fault(sweep), (0,))] * 3)


@pytest.mark.parametrize("lanes", [(), *((lane,) for lane in (*STARTS, *JOINS))])
def test_every_shape_of_sweep_is_valid_with_split_mixtures(lanes: tuple[LaneShape, ...]) -> None:
    split = SweepLayers(mlp_on_cpu=(0, 1, 2), split_mlps=(0, 2))
    main = Placed(sweep_template(LAYERS, (MAIN[2],), split), (0,))
    other = Placed(sweep_template(LAYERS, lanes, split), tuple(range(7, 7 + len(lanes))))
    validate_sequence([main, main, other, main])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (drop(is_op(OpKind.STAGE, Part.EXPERTS, layer=1)), "expert_sum.* left it"),
        (move(is_op(OpKind.STAGE, Part.EXPERTS), Queue.CPU), "state, which cpu cannot reach"),
        (drop_waits(is_op(OpKind.COPY, Part.ROUTE)), "may read .*state"),
        (drop_waits(is_op(OpKind.STAGE, Part.MLP)), "may read .*host_state"),
        (drop_waits(is_op(OpKind.STAGE, Part.RESIDUAL)), "may read .*staged_state"),
    ],
)
def test_split_mixtures_without_order_are_found(fault: Mutation, message: str) -> None:
    sweep = sweep_template(2, (MAIN[0],), SweepLayers(mlp_on_cpu=(0, 1), split_mlps=(0, 1)))
    validate_sequence([Placed(sweep, (0,))] * 2)
    with pytest.raises(ProgramError, match=message):
        validate_sequence([Placed(fault(sweep), (0,))] * 2)


def test_sampling_and_transfers_are_valid() -> None:
    validate(sampling_template(3))
    validate(transfer_template((Tier.DEVICE, Tier.HOST, Tier.DEVICE)))


def test_a_cohort_s_whole_token_is_valid_beside_the_main_lane() -> None:
    main = MAIN[2]
    joins = [LaneShape(cursor=c, suspends=True, host=True, guarded=True) for c in range(LAYERS)]
    programs = [Placed(sweep_template(LAYERS, (main, STARTS[0])), (0, 7))]
    for join in joins:
        programs.append(Placed(sweep_template(LAYERS, (main, join)), (0, 7)))
        programs.append(Placed(sampling_template(1), (0,)))
    validate_sequence(programs)


def test_a_join_without_its_wait_is_found_in_a_sequence() -> None:
    forget = drop_joins(is_op(OpKind.COPY, Part.PARTIAL))
    start = Placed(sweep_template(LAYERS, (START,)), (7,))
    join = sweep_template(LAYERS, (LaneShape(cursor=0, suspends=True, host=True, device=False),))
    validate_sequence([start, Placed(join, (7,))])
    with pytest.raises(ProgramError, match=f"may read .*{HOST_PARTIAL}"):
        validate_sequence([start, Placed(forget(join), (7,))])


def test_lanes_that_share_a_buffer_are_told_apart_by_their_keys() -> None:
    """Two cohorts of one key would overwrite each other's staged queries."""
    both = sweep_template(LAYERS, (START, START))
    validate_sequence([Placed(both, (1, 2))])
    with pytest.raises(ProgramError, match="may overwrite"):
        validate_sequence([Placed(both, (1, 1))])


def test_ordinals_count_from_one_on_each_queue() -> None:
    with pytest.raises(ProgramError, match="ordinal 2, expected 1"):
        validate(template(op(Queue.ACCEL, 2, writes=(STATE,))))


def test_a_wait_for_the_future_would_never_end() -> None:
    early = op(Queue.ACCEL, 1, writes=(STATE,), waits=(SignalRef(Queue.CPU, 1),))
    with pytest.raises(ProgramError, match="nothing before it raises"):
        validate(template(early, op(Queue.CPU, 1)))


def test_counts_must_be_those_of_the_operations() -> None:
    with pytest.raises(ProgramError, match="counts"):
        validate(template(op(Queue.ACCEL, 1, writes=(STATE,)), counts=((Queue.ACCEL, 2),)))


def test_lanes_must_exist() -> None:
    with pytest.raises(ProgramError, match="lane that the template lacks"):
        validate(template(op(Queue.ACCEL, 1, writes=(STATE,), lanes=(1,))))


def test_a_buffer_must_have_been_written() -> None:
    with pytest.raises(ProgramError, match="which nothing wrote"):
        validate(template(op(Queue.ACCEL, 1, reads=(STATE,))))


def test_reads_are_ordered_after_writes() -> None:
    write, read = op(Queue.ACCEL, 1, writes=(STATE,)), op(Queue.D2H, 1, reads=(STATE,))
    with pytest.raises(ProgramError, match=r"may read .* before"):
        validate(template(write, read))
    validate(template(write, read._replace(waits=(SignalRef(Queue.ACCEL, 1),))))


def test_overwriting_is_ordered_after_reads() -> None:
    write, again = op(Queue.ACCEL, 1, writes=(STATE,)), op(Queue.ACCEL, 2, writes=(STATE,))
    read = op(Queue.D2H, 1, reads=(STATE,), waits=(SignalRef(Queue.ACCEL, 1),))
    with pytest.raises(ProgramError, match=r"may overwrite .* while"):
        validate(template(write, read, again))
    validate(template(write, read, again._replace(waits=(SignalRef(Queue.D2H, 1),))))


def test_order_is_transitive_over_queues() -> None:
    write = op(Queue.ACCEL, 1, writes=(STATE,))
    between = op(Queue.H2D, 1, waits=(SignalRef(Queue.ACCEL, 1),))
    read = op(Queue.D2H, 1, reads=(STATE,), waits=(SignalRef(Queue.H2D, 1),))
    validate(template(write, between, read))


def test_each_queue_keeps_to_its_memory() -> None:
    with pytest.raises(ProgramError, match="cpu cannot reach"):
        validate(template(op(Queue.CPU, 1, writes=(LOGITS,))))
    with pytest.raises(ProgramError, match="accel cannot reach"):
        validate(template(op(Queue.ACCEL, 1, writes=(HOST_PARTIAL,))))
