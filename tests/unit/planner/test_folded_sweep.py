"""Sweeps put together from few layers are those that are built layer by layer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import scaled

from tandem.plan.program import LaneShape, OpKind, ProgramOp
from tandem.plan.sweep_layers import SweepLayers
from tandem.plan.weights import StreamedLayers
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.fluid.folded_sweep import FoldedSweeps
from tandem.planner.fluid.grouping import grouped
from tandem.planner.fluid.groups import Schedule
from tandem.planner.fluid.sweep_operations import sweep_operations

MOST_LAYERS = 14
THROUGH = (LaneShape(), LaneShape(device=False, host=True), LaneShape(host=True))
COHORT = LaneShape(suspends=True, device=False, host=True)


@st.composite
def models(draw: st.DrawFn) -> tuple[tuple[int, ...], frozenset[int]]:
    """Windows and layers without experts."""
    windows = draw(st.lists(st.sampled_from((0, 0, 9)), min_size=1, max_size=MOST_LAYERS))
    dense = draw(st.sampled_from(((), (0,), (0, 1))))
    return tuple(windows), frozenset(layer for layer in dense if layer < len(windows))


@st.composite
def placements(draw: st.DrawFn, num_layers: int) -> SweepLayers:
    """Any, spread evenly or not."""
    homes = draw(
        st.lists(st.integers(0, 3), min_size=num_layers, max_size=num_layers)
        | st.lists(st.integers(0, 1), min_size=num_layers, max_size=num_layers)
    )
    reads = draw(st.sets(st.integers(0, num_layers - 1)))
    if draw(st.integers(0, 3)) == 0:  # the host alone reads layers in place
        return SweepLayers(StreamedLayers(on_disk=tuple(sorted(reads))))
    circle = [layer for layer, home in enumerate(homes) if home in (1, 2)]
    on_cpu = [layer for layer, home in enumerate(homes) if home == 2 and layer not in circle[:2]]
    always = [layer for layer, home in enumerate(homes) if home == 3]
    if draw(st.booleans()):
        streamed = StreamedLayers(tuple(circle), mlps=tuple(circle))
        return SweepLayers(streamed, (), tuple(sorted(on_cpu + always)))
    whole = draw(st.booleans())
    on_disk = tuple(layer for layer in circle if layer in reads and layer not in on_cpu)
    return SweepLayers(
        StreamedLayers(tuple(circle), on_disk if draw(st.booleans()) else ()),
        tuple(sorted(on_cpu + always if whole else on_cpu)),
        () if whole else tuple(always),
    )


def told(
    schedule: Schedule, windows: tuple[int, ...], dense: frozenset[int]
) -> list[tuple[object, ...]]:
    """Groups, with all that prices depend on of their operations."""

    def priced(op: ProgramOp) -> tuple[object, ...]:
        seen = windows[op.layer] if op.kind is OpKind.ATTEND else None
        lacks = op.kind is OpKind.STAGE and op.layer in dense
        return op.kind, op.queue, op.part, op.lanes, op.tier, seen, lacks

    found = [priced(op) for op in schedule.ops]
    assert len(set(found)) == len(found)
    return [
        (*group._replace(ops=()), *((found[index], times) for index, times in group.ops))
        for group in schedule.groups
    ]


@settings(max_examples=scaled(60), deadline=None)
@given(st.data(), models())
def test_groups_are_those_of_every_layer(
    data: st.DataObject, model: tuple[tuple[int, ...], frozenset[int]]
) -> None:
    windows, dense = model
    folded = FoldedSweeps(windows, dense)
    for _ in range(3):  # what was cut for one is used for the others
        layers = data.draw(placements(len(windows)))
        lanes = (data.draw(st.sampled_from(THROUGH)),)
        if not (layers.on_cpu or layers.mlp_on_cpu) and data.draw(st.booleans()):
            cursor = data.draw(st.integers(0, len(windows) - 1))
            lanes += (LaneShape(cursor, suspends=True, device=False, host=True),)
        found = folded.schedule(lanes, layers)
        whole = grouped(sweep_operations(len(windows), lanes, layers), windows, dense)
        assert found is not None
        assert told(found, windows, dense) == told(whole, windows, dense)


def test_alike_layers_are_cut_once() -> None:
    """Of 80 layers of which half are streamed, a few are built, whatever their number."""
    folded = FoldedSweeps((0,) * 80, ())
    built: list[int] = []

    def cut(num_layers: int, *others: object) -> list[ProgramOp]:
        built.append(num_layers)
        return sweep_operations(num_layers, *others)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tandem.planner.fluid.folded_sweep.sweep_operations", cut)
        for streamed in (33, 40, 41, 47):
            layers = Elsewhere(streamed).sweep(80, prompts=False)
            assert folded.schedule((LaneShape(),), layers) is not None
    assert max(built) < 40
    assert sum(built) < 80


@pytest.mark.parametrize(
    ("lanes", "layers"),
    [
        ((COHORT,), SweepLayers()),
        ((LaneShape(), LaneShape(3, suspends=True, host=True, beside=1)), SweepLayers()),
        ((LaneShape(),), SweepLayers(on_cpu=(1, 2), read_on_cpu=(2,))),
        ((LaneShape(),), SweepLayers(StreamedLayers((0, 1, 2), mlps=(1,)))),
        ((LaneShape(),), SweepLayers(mlp_on_cpu=(2,), split_mlps=(2,))),
    ],
)
def test_what_depends_on_more_than_neighbours_is_built_layer_by_layer(
    lanes: tuple[LaneShape, ...], layers: SweepLayers
) -> None:
    assert FoldedSweeps((0,) * 6, ()).schedule(lanes, layers) is None
