"""A block's passes: complete by the validator, and each kind of wait in them is needed."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.mutations import Selector, drop_waits, is_op

from tandem.plan.block_shape import BlockShape
from tandem.plan.block_template import block_template, first_block_template
from tandem.plan.fill_template import fill_template
from tandem.plan.prefill_template import PROMPTS, prefill_template
from tandem.plan.program import OpKind, Part, ProgramTemplate, Queue
from tandem.plan.sweep_layers import SweepLayers
from tandem.plan.template_builder import streamed_weights
from tandem.plan.validator import Placed, ProgramError, validate_sequence
from tandem.plan.weights import STREAM_SLOTS, StreamedLayers
from tandem.planner.offline.work import ENDS, LOAD_CPU_COLUMNS, READ, decode_work, prefill_work
from tandem.spec.errors import ConfigError


def check(*templates: ProgramTemplate) -> None:
    """One after the other, on the same batches."""
    validate_sequence([Placed(each, tuple(range(len(each.lanes)))) for each in templates])


@st.composite
def shapes(draw: st.DrawFn) -> BlockShape:
    layers = draw(st.integers(1, 6))
    picked = draw(st.sets(st.integers(0, layers - 1)))
    streamed = tuple(sorted(picked))
    read = draw(st.sets(st.sampled_from(streamed))) if streamed else ()
    resident, comes, cpu = draw(st.tuples(st.booleans(), st.booleans(), st.booleans()).filter(any))
    apart = draw(subsets([layer for layer in streamed if layer not in read]))
    weights = StreamedLayers(streamed, tuple(sorted(read)), apart)
    whole = [layer for layer in streamed if layer not in (*read, *apart)]
    computed, on_cpu = draw(
        st.tuples(subsets(apart), subsets(whole)).filter(lambda found: goes_round(weights, *found))
    )
    in_parts = not apart and draw(st.booleans())
    may_divide = len(streamed) > max(STREAM_SLOTS, len(read))
    may_divide = may_divide and not (in_parts or computed or on_cpu)
    divides = may_divide and draw(st.booleans())
    cuts = divides and not apart and draw(st.booleans())
    return BlockShape(
        layers,
        draw(st.integers(1, 5)),
        weights,
        resident,
        comes,
        cpu,
        recomputes=comes and not (on_cpu or cuts) and draw(st.booleans()),
        prompts_on_host=draw(st.booleans()),
        layers_overlap=draw(st.booleans()),
        weights_in_parts=in_parts,
        mlps_on_cpu=computed,
        layers_on_cpu=on_cpu,
        columns_on_cpu=divides,
        attention_maps_on_cpu=cuts,
    )


def subsets(layers: Sequence[int]) -> st.SearchStrategy[tuple[int, ...]]:
    """Ascending; often none."""
    chosen = st.sets(st.sampled_from(layers)) if layers else st.just(set[int]())
    return st.just(()) | chosen.map(lambda found: tuple(sorted(found)))


def goes_round(
    weights: StreamedLayers, mlps_on_cpu: tuple[int, ...], layers_on_cpu: tuple[int, ...]
) -> bool:
    """What plans are asked for: see `SweepChoice`."""
    try:
        passes = SweepLayers(weights, layers_on_cpu, mlps_on_cpu)
    except ConfigError:
        return False
    return not passes.reads or passes.reads == SweepLayers(weights).reads


@given(shapes())
def test_prompts_and_passes_follow_each_other_without_hazards(shape: BlockShape) -> None:
    prefill, fill, passed = prefill_template(shape), fill_template(shape), block_template(shape)
    first = first_block_template(shape)
    check(prefill, passed, passed, passed, prefill, prefill, passed)
    check(prefill, fill, first, passed, prefill, fill, first)


def test_a_pass_that_follows_another_one_does_not_wait_for_a_fill() -> None:
    """It counts back from what a whole pass has loaded; the first pass waits for all."""
    fill, further = fill_template(ALL), block_template(ALL)
    check(fill, first_block_template(ALL), further)
    with pytest.raises(ProgramError, match=r"may read .*slot.* before .*copy"):
        check(fill, further)


def test_a_fill_waits_until_prompts_have_drained() -> None:
    prefill, fill = prefill_template(CACHE), fill_template(CACHE)
    check(prefill, fill)
    with pytest.raises(ProgramError):
        check(prefill, drop_waits(is_op(COPY, Part.CACHE), D2H)(fill))


def parts_of(shape: BlockShape) -> tuple[Part, ...]:
    if not shape.weights_in_parts:
        return (Part.NONE,)
    keys_first = shape.recomputes and not shape.cpu
    before = (Part.KEYS_VALUES, Part.QUERIES) if keys_first else (Part.PRE,)
    return (*before, Part.POST)


@given(shapes())
def test_a_pass_has_the_operations_that_the_bound_counts(shape: BlockShape) -> None:
    mlps, whole, divided = map(len, (shape.mlps_on_cpu, shape.layers_on_cpu, shape.divided))
    for template, sweep, kinds in (
        (
            block_template(shape),
            shape.in_passes,
            (
                (decode_work(shape), shape.num_layers - mlps - whole - divided),
                (decode_work(shape, "cut" if shape.cut else "columns"), divided),
                (decode_work(shape, "mlp"), mlps),
                (decode_work(shape, "layer"), whole),
            ),
        ),
        (prefill_template(shape), shape.over_prompts, ((prefill_work(shape), shape.num_layers),)),
    ):
        expected = Counter(dict.fromkeys(ENDS, shape.batches))
        for work, layers in kinds:
            expected.update(dict.fromkeys(work, layers * shape.batches))
        for layer in sweep.loaded if sweep.reloads else ():
            for part in parts_of(shape):
                apart = Part.MLP if layer in shape.weights.mlps else part
                if divided and template.name != PROMPTS:
                    apart = Part.COLUMNS
                expected[OpKind.LOAD, Queue.WEIGHTS, apart] += 1
        if divided and template.name == PROMPTS:
            expected[LOAD_CPU_COLUMNS] = shape.weights.slots
        expected[READ] = len(shape.weights.on_disk) if sweep.reloads else 0
        found = Counter((op.kind, op.queue, op.part) for op in template.ops)
        if template.name == PROMPTS:
            for queue in (Queue.H2D, Queue.D2H):  # activations, on their way between layers
                found.pop((OpKind.COPY, queue, Part.RESIDUAL), None)
        elif whole or shape.cut:
            check_crossings(shape, found)
            for each in (*RESIDUALS, ADDED):
                found.pop(each, None)
                expected.pop(each, None)
        assert +found == +expected


RESIDUALS = (
    (OpKind.COPY, Queue.D2H, Part.RESIDUAL),
    (OpKind.COPY, Queue.H2D, Part.RESIDUAL),
    (OpKind.STAGE, Queue.ACCEL, Part.RESIDUAL),
)
ADDED = (OpKind.STAGE, Queue.CPU, Part.RESIDUAL)


def check_crossings(shape: BlockShape, found: Counter[tuple[OpKind, Queue, Part]]) -> None:
    """Activations cross the link only where the next stage is on its other side; those of a layer
    whose attention's maps are the CPU's also go up for the accelerator's columns, which come down
    if the residual is still the CPU's.
    """
    whole = (*shape.layers_on_cpu, *shape.cut)
    sides = "".join(
        "cc" if layer in whole else "ac" if layer in shape.mlps_on_cpu else "aa"
        for layer in range(shape.num_layers)
    )
    way, cut = f"a{sides}a", len(shape.cut)
    down, up = way.count("ac"), way.count("ca")
    added = cut - up if cut else 0  # such layers but the last ones in a row
    crossings = (down + added, up + cut, up + cut)
    assert [found[each] for each in RESIDUALS] == [n * shape.batches for n in crossings]
    assert found[ADDED] == added * shape.batches


WEIGHTS = StreamedLayers((0, 1, 2, 3))
ALL = BlockShape(
    4, 3, WEIGHTS, resident=True, streamed=True, cpu=True, recomputes=True, prompts_on_host=True
)
OVERLAPPING = replace(ALL, layers_overlap=True)
FETCHED = replace(ALL, resident=False, cpu=False)
READ_BEFORE = replace(ALL, weights=StreamedLayers((0, 1, 2, 3), (0, 1, 3)))
ON_CPU = replace(
    ALL, weights=StreamedLayers((0, 1, 2, 3), mlps=(0, 1, 2, 3)), mlps_on_cpu=(2,), cpu=False
)
CPU_LAYERS = replace(ALL, recomputes=False, layers_on_cpu=(2,))
DIVIDED = replace(ALL, recomputes=False, columns_on_cpu=True)
CUT = replace(DIVIDED, attention_maps_on_cpu=True)
DIVIDED_MLPS = replace(DIVIDED, weights=ON_CPU.weights)
DIVIDED_BESIDE_DISK = replace(DIVIDED, weights=StreamedLayers((0, 1, 2, 3), (0, 2)))
CACHE = BlockShape(4, 1, WEIGHTS, streamed=True)
ONE = BlockShape(1, 1, streamed=True)
COPY, H2D, D2H, ACCEL, CPU = OpKind.COPY, Queue.H2D, Queue.D2H, Queue.ACCEL, Queue.CPU
PRE, POST = is_op(OpKind.STAGE, Part.PRE), is_op(OpKind.STAGE, Part.POST)
RECOMPUTE = is_op(OpKind.STAGE, Part.RECOMPUTE)
OWN_COLUMNS = is_op(OpKind.STAGE, Part.COLUMNS, ACCEL)
Build = Callable[[BlockShape], ProgramTemplate]


@pytest.mark.parametrize(
    ("build", "shape", "select", "on"),
    [
        pytest.param(block_template, ALL, PRE, Queue.WEIGHTS, id="weights"),
        pytest.param(block_template, ALL, PRE, D2H, id="stored"),
        pytest.param(block_template, ALL, RECOMPUTE, H2D, id="prefix-there"),
        pytest.param(block_template, ALL, is_op(OpKind.APPEND, queue=ACCEL), H2D, id="cache-there"),
        pytest.param(block_template, ALL, is_op(OpKind.APPEND, queue=CPU), D2H, id="qkv-there"),
        pytest.param(block_template, ALL, is_op(OpKind.MERGE), H2D, id="partial-there"),
        pytest.param(block_template, CACHE, is_op(COPY, Part.CACHE, H2D), ACCEL, id="slot-free"),
        pytest.param(block_template, ONE, is_op(COPY, Part.CACHE, H2D), D2H, id="token-stored"),
        pytest.param(block_template, CACHE, is_op(COPY, Part.CACHE, D2H), ACCEL, id="token-made"),
        pytest.param(block_template, ALL, is_op(COPY, Part.PREFIX, H2D), ACCEL, id="prefix-free"),
        pytest.param(block_template, ALL, is_op(COPY, Part.PARTIAL), CPU, id="attended"),
        pytest.param(block_template, ALL, is_op(COPY, Part.QKV), ACCEL, id="qkv-made"),
        pytest.param(block_template, ALL, is_op(OpKind.LOAD), ACCEL, id="weights-used"),
        *(
            pytest.param(build, replace(shape, weights_in_parts=True), select, on, id=name)
            for build, shape, select, on, name in (
                (block_template, ALL, PRE, Queue.WEIGHTS, "first-part"),
                (block_template, ALL, POST, Queue.WEIGHTS, "second-part"),
                (block_template, ALL, is_op(OpKind.LOAD, Part.PRE), ACCEL, "first-part-used"),
                (block_template, ALL, is_op(OpKind.LOAD, Part.POST), ACCEL, "second-part-used"),
                (block_template, OVERLAPPING, POST, Queue.WEIGHTS, "overlapping-second-part"),
                (prefill_template, ALL, POST, Queue.WEIGHTS, "prompts-second-part"),
                (block_template, FETCHED, RECOMPUTE, Queue.WEIGHTS, "keys-part"),
                (block_template, FETCHED, PRE, Queue.WEIGHTS, "queries-part"),
                (block_template, FETCHED, POST, Queue.WEIGHTS, "part-after-attention"),
                (prefill_template, FETCHED, PRE, Queue.WEIGHTS, "prompts-queries-part"),
                (block_template, FETCHED, is_op(OpKind.LOAD, Part.KEYS_VALUES), ACCEL, "keys-used"),
            )
        ),
        *(
            pytest.param(build, READ_BEFORE, is_op(kind), on, id=f"{name}-{what}")
            for name, build in (("passes", block_template), ("prompts", prefill_template))
            for kind, on, what in (
                (OpKind.LOAD, Queue.DISK, "weights-read"),
                (OpKind.READ, Queue.WEIGHTS, "weights-brought"),
            )
        ),
        *(
            pytest.param(block_template, OVERLAPPING, select, on, id=f"overlapping-{name}")
            for select, on, name in (
                (PRE, Queue.WEIGHTS, "weights"),
                (PRE, D2H, "stored"),
                (is_op(OpKind.APPEND, queue=ACCEL), H2D, "cache-there"),
                (is_op(OpKind.APPEND, queue=CPU), D2H, "qkv-there"),
                (is_op(OpKind.MERGE), H2D, "partial-there"),
                (is_op(COPY, Part.PARTIAL), CPU, "attended"),
                (is_op(OpKind.LOAD), ACCEL, "weights-used"),
            )
        ),
        *(
            pytest.param(block_template, ON_CPU, select, on, id=f"mlps-{name}")
            for select, on, name in (
                (POST, Queue.WEIGHTS, "streamed"),
                (is_op(COPY, Part.RESIDUAL, D2H), ACCEL, "cut"),
                (is_op(OpKind.STAGE, Part.MLP), D2H, "there"),
                (is_op(COPY, Part.RESIDUAL, H2D), CPU, "computed"),
                (is_op(OpKind.STAGE, Part.RESIDUAL), H2D, "back"),
                (is_op(OpKind.LOAD, Part.MLP), ACCEL, "weights-used"),
            )
        ),
        *(
            pytest.param(block_template, CPU_LAYERS, select, on, id=f"layers-{name}")
            for select, on, name in (
                (is_op(COPY, Part.RESIDUAL, D2H), ACCEL, "made"),
                (is_op(OpKind.STAGE, Part.PRE, CPU), D2H, "there"),
                (is_op(COPY, Part.QKV, H2D), CPU, "projected"),
                (is_op(OpKind.APPEND, queue=ACCEL), H2D, "qkv-there"),
                (is_op(OpKind.MERGE, queue=CPU), D2H, "partial-there"),
                (is_op(COPY, Part.RESIDUAL, H2D), CPU, "computed"),
                (is_op(OpKind.STAGE, Part.RESIDUAL), H2D, "back"),
            )
        ),
        pytest.param(
            block_template,
            replace(CPU_LAYERS, streamed=False),
            is_op(COPY, Part.PARTIAL, D2H),
            ACCEL,
            id="layers-attended",
        ),
        *(
            pytest.param(block_template, shape, select, on, id=f"columns-{name}")
            for shape, select, on, name in (
                (DIVIDED, PRE, Queue.WEIGHTS, "layers-there"),
                (DIVIDED_MLPS, OWN_COLUMNS, Queue.WEIGHTS, "there"),
                (DIVIDED, is_op(COPY, Part.RESIDUAL, D2H), ACCEL, "cut"),
                (DIVIDED, is_op(OpKind.STAGE, Part.COLUMNS, CPU), D2H, "residual-there"),
                (DIVIDED, is_op(COPY, Part.RESIDUAL, H2D), CPU, "computed"),
                (DIVIDED, is_op(OpKind.STAGE, Part.RESIDUAL), H2D, "back"),
                (DIVIDED, is_op(OpKind.LOAD, Part.COLUMNS), ACCEL, "used"),
            )
        ),
        *(
            pytest.param(block_template, CUT, select, on, id=f"maps-{name}")
            for select, on, name in (
                (OWN_COLUMNS, Queue.WEIGHTS, "columns-there"),
                (is_op(COPY, Part.RESIDUAL, H2D), CPU, "input-made"),
                (is_op(OpKind.STAGE, Part.RESIDUAL, ACCEL), H2D, "input-there"),
                (is_op(COPY, Part.RESIDUAL, D2H), ACCEL, "own-made"),
                (is_op(OpKind.STAGE, Part.RESIDUAL, CPU), D2H, "own-there"),
                (is_op(OpKind.MERGE, queue=CPU), D2H, "partial-there"),
                (is_op(COPY, Part.QKV, H2D), CPU, "projected"),
                (is_op(OpKind.LOAD, Part.COLUMNS), ACCEL, "used"),
            )
        ),
        pytest.param(prefill_template, DIVIDED, PRE, Queue.WEIGHTS, id="prompts-columns"),
        pytest.param(prefill_template, CUT, PRE, Queue.WEIGHTS, id="prompts-maps"),
        pytest.param(prefill_template, ON_CPU, POST, Queue.WEIGHTS, id="prompts-mlps"),
        pytest.param(prefill_template, ALL, PRE, Queue.WEIGHTS, id="prompts-weights"),
        pytest.param(prefill_template, CACHE, PRE, D2H, id="prompts-drained"),
        pytest.param(prefill_template, ALL, PRE, H2D, id="prompts-came"),
        pytest.param(
            prefill_template, ALL, is_op(OpKind.STAGE, Part.POST), D2H, id="prompts-prefix"
        ),
        pytest.param(
            prefill_template, ALL, is_op(COPY, Part.RESIDUAL, H2D), D2H, id="prompts-parked"
        ),
        pytest.param(
            prefill_template, ALL, is_op(COPY, Part.RESIDUAL, D2H), ACCEL, id="prompts-done"
        ),
        pytest.param(prefill_template, CACHE, is_op(COPY, Part.CACHE), ACCEL, id="prompts-made"),
    ],
)
def test_a_program_that_forgets_a_wait_is_refused(
    build: Build, shape: BlockShape, select: Selector, on: Queue
) -> None:
    template = build(shape)
    check(template, template)
    broken = drop_waits(select, on)(template)
    assert broken != template
    with pytest.raises(ProgramError):
        check(broken, broken)


def test_where_layers_overlap_the_cpu_has_other_batches_between_two_layers() -> None:
    """Of one batch, what it does in the next layer comes before the others have left this one."""
    ops = [op for op in block_template(OVERLAPPING).ops if op.queue is ACCEL]

    def place(part: Part, layer: int, batch: int) -> int:
        return next(
            i
            for i, op in enumerate(ops)
            if (op.part, op.layer, op.lanes) == (part, layer, (batch,))
        )

    for layer in range(3):
        for batch in range(2):
            following = place(Part.PRE, layer + 1, batch)
            assert place(Part.POST, layer, batch) < following
            assert following < place(Part.POST, layer, batch + 1)
    alone = replace(OVERLAPPING, batches=1)
    assert block_template(alone) == block_template(replace(alone, layers_overlap=False))


@pytest.mark.parametrize("mlps", [False, True])
def test_the_cpu_has_a_batch_before_others_begin_where_nothing_comes(mlps: bool) -> None:
    """What it has first waits for one batch's way through the layers before, not for all."""
    apart = (0, 1, 3, 5) if mlps else ()
    mine, others = ((3, 5), ()) if mlps else ((), (3, 5))
    weights = StreamedLayers((0, 1, 3, 5), (), apart)
    shape = BlockShape(6, 3, weights, resident=True, mlps_on_cpu=mine, layers_on_cpu=others)
    assert shape.batches_part
    ops = block_template(shape).ops
    places = {(op.queue, op.kind, op.part, op.layer, op.lanes): i for i, op in enumerate(ops)}

    def place(queue: Queue, part: Part, layer: int, batch: int) -> int:
        return places[queue, OpKind.STAGE, part, layer, (batch,)]

    theirs = Part.MLP if mlps else Part.POST
    for layer, begins in ((3, 0), (5, 4)):
        for batch in range(2):
            ends = place(Queue.CPU, theirs, layer, batch)
            assert place(ACCEL, Part.POST, layer - 1, batch) < ends
            assert ends < place(ACCEL, Part.PRE, begins, batch + 1)
    # whose weights and whose KV go round are in one layer together
    for other in (
        replace(shape, streamed=True),
        replace(shape, cpu=True),
        replace(shape, mlps_on_cpu=mine[1:], layers_on_cpu=others[1:]),
    ):
        assert not other.batches_part
        first = [op for op in block_template(other).ops if op.part in (Part.PRE, Part.POST)]
        assert first[1].lanes == (1,) or first[2].lanes == (1,)


def test_the_cpu_s_results_come_before_keys_and_values_of_the_next_layer() -> None:
    """Which are wanted later, and are many bytes more."""
    shape = BlockShape(3, 2, resident=False, streamed=True, cpu=True)
    ops = [op for op in block_template(shape).ops if op.queue is Queue.H2D]
    assert [(op.part, op.layer, op.lanes) for op in ops] == [
        (part, layer, (batch,))
        for done, following in ((0, 1), (1, 2), (2, 0))
        for batch in range(2)
        for part, layer in ((Part.PARTIAL, done), (Part.CACHE, following))
    ]


def test_weights_in_parts_have_a_layer_s_time_to_come_where_layers_overlap() -> None:
    """What a part takes the place of has been used a layer of all batches before it is wanted."""
    template = block_template(replace(OVERLAPPING, weights_in_parts=True))
    stages = {
        (op.part, op.layer, op.lanes[0]): op.ordinal
        for op in template.ops
        if op.kind is OpKind.STAGE and op.part in (Part.PRE, Part.POST)
    }
    loads = [op for op in template.ops if op.kind is OpKind.LOAD]
    assert [op.part for op in loads] == [Part.PRE, Part.POST] * 4
    for op in loads[:4]:
        (free,) = (wait.ordinal for wait in op.waits if wait.queue is ACCEL)
        wanted = stages[op.part, op.layer, 0]
        between = [n for n in stages.values() if free < n < wanted]
        assert len(between) >= 2 * OVERLAPPING.batches
    whole = next(op for op in block_template(OVERLAPPING).ops if op.kind is OpKind.LOAD)
    (free,) = (wait.ordinal for wait in whole.waits if wait.queue is ACCEL)
    between = [n for n in stages.values() if free < n < stages[Part.PRE, 2, 0]]
    assert len(between) == 2  # the last batch's of the next layer, and the first one's after it


def test_prefixes_are_recomputed_when_keys_and_values_maps_have_come() -> None:
    """First of all in a layer, while the rest of its weights is still on its way."""
    template = block_template(replace(FETCHED, weights_in_parts=True))
    loads = {(op.layer, op.part): op for op in template.ops if op.kind is OpKind.LOAD}
    ordinals = [loads[2, part].ordinal for part in (Part.KEYS_VALUES, Part.QUERIES, Part.POST)]
    assert ordinals == sorted(ordinals)
    stages = [op for op in template.ops if op.kind is OpKind.STAGE and op.layer == 2]
    first = stages[0]
    assert (first.part, stages[1].part) == (Part.RECOMPUTE, Part.PRE)
    assert first.lanes == stages[1].lanes == (0,)
    awaited = [max(w.ordinal for w in op.waits if w.queue is Queue.WEIGHTS) for op in stages[:2]]
    assert awaited == ordinals[:2]
    mixed = block_template(replace(ALL, weights_in_parts=True))  # the CPU waits for queries
    places = [op.part for op in mixed.ops if op.kind is OpKind.STAGE and op.layer == 2]
    assert places.index(Part.PRE) < places.index(Part.RECOMPUTE)


@pytest.mark.parametrize("shape", [DIVIDED, DIVIDED_MLPS, CUT, DIVIDED_BESIDE_DISK])
def test_prompts_behind_passes_bring_the_columns_that_these_left_out(shape: BlockShape) -> None:
    prompts, passed = prefill_template(shape), block_template(shape)
    check(prompts, passed, prompts)
    undivided = prefill_template(replace(shape, columns_on_cpu=False, attention_maps_on_cpu=False))
    unaware = [
        op._replace(reads=(*op.reads, streamed_weights(op.layer, Part.CPU_COLUMNS)))
        if op.part is Part.POST
        else op
        for op in undivided.ops
    ]
    with pytest.raises(ProgramError, match=r"weights\.cpu_columns"):
        check(prompts, passed, replace(undivided, ops=tuple(unaware)))


def test_layers_from_disk_come_whole_among_divided_ones() -> None:
    passed, prompts = block_template(DIVIDED_BESIDE_DISK), prefill_template(DIVIDED_BESIDE_DISK)
    loads = {op.layer: op.part for op in passed.ops if op.kind is OpKind.LOAD}
    assert loads == {0: Part.NONE, 1: Part.COLUMNS, 2: Part.NONE, 3: Part.COLUMNS}
    computed = {op.layer for op in passed.ops if op.part is Part.COLUMNS and op.queue is CPU}
    assert computed == {1, 3}
    completed = [op.layer for op in prompts.ops if op.part is Part.CPU_COLUMNS]
    assert completed == [1]


def test_the_cpu_begins_with_all_batches_before_the_accelerator_waits_for_weights() -> None:
    ops = block_template(replace(DIVIDED_MLPS, cpu=False)).ops
    here = [op.part for op in ops if op.queue is ACCEL and op.layer == 2]
    assert here.count(Part.COLUMNS) == here.count(Part.OUTPUT) == 3
    last = max(i for i, part in enumerate(here) if part is Part.OUTPUT)
    assert last < here.index(Part.COLUMNS)


def test_the_cpu_goes_on_to_its_columns_without_a_wait_for_the_link() -> None:
    """Where it has attended to all, it waits once in a layer: for the accelerator's columns."""
    ops = block_template(replace(CUT, resident=False, streamed=False, batches=1)).ops
    there = [op for op in ops if op.queue is CPU and op.layer == 2]
    assert [(op.kind, op.part) for op in there] == [
        (OpKind.STAGE, Part.PRE),
        (OpKind.APPEND, Part.NONE),
        (OpKind.ATTEND, Part.NONE),
        (OpKind.MERGE, Part.NONE),
        (OpKind.STAGE, Part.OUTPUT),
        (OpKind.STAGE, Part.COLUMNS),
        (OpKind.STAGE, Part.RESIDUAL),
    ]
    assert [bool(op.waits) for op in there] == [False] * 6 + [True]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_layers": 0, "batches": 1}, "1 batches, 0 layers"),
        ({"num_layers": 1, "batches": 0}, "0 batches, 1 layers"),
        ({"num_layers": 1, "batches": 1, "resident": False}, "without sequences"),
        ({"num_layers": 1, "batches": 1, "recomputes": True}, "only streamed KV"),
        (
            {
                "num_layers": 4,
                "batches": 1,
                "weights": WEIGHTS,
                "streamed": True,
                "recomputes": True,
                "layers_on_cpu": (2,),
            },
            "makes no keys",
        ),
        (
            {
                "num_layers": 4,
                "batches": 1,
                "weights": WEIGHTS,
                "columns_on_cpu": True,
                "weights_in_parts": True,
            },
            "in parts",
        ),
        (
            {"num_layers": 4, "batches": 1, "weights": WEIGHTS, "attention_maps_on_cpu": True},
            "beside columns",
        ),
        (
            {
                "num_layers": 4,
                "batches": 1,
                "weights": WEIGHTS,
                "streamed": True,
                "recomputes": True,
                "columns_on_cpu": True,
                "attention_maps_on_cpu": True,
            },
            "that recompute",
        ),
    ],
)
def test_shapes_without_work_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BlockShape(**wrong)
