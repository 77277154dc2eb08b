"""Which stages of a sweep may be launched together with the next layer's."""

import pytest

from tandem.plan.layer_launches import LayerPart, layer_parts, resident_parts
from tandem.plan.program import LaneShape, Part, ProgramOp, ProgramTemplate, Queue
from tandem.plan.sweep_layers import StreamedLayers, SweepLayers
from tandem.plan.templates import sampling_template, sweep_template
from tandem.plan.weights import Home

HYBRID = LaneShape(host=True)
COHORT = LaneShape(cursor=1, suspends=True, device=False, host=True)


def parts_of(template: ProgramTemplate) -> list[LayerPart]:
    """In order; the first PRE, which stands alone, left out."""
    parts = layer_parts(template)
    ordered = [parts[op.ordinal] for op in template.ops if _is_first(op, parts)]
    assert len(ordered) == len(parts)
    return [part for part in ordered if part != LayerPart(None, 0)]


def _is_first(op: ProgramOp, parts: dict[int, LayerPart]) -> bool:
    return op.queue is Queue.ACCEL and op.ordinal in parts


def whole(*layers: int, last: int) -> list[LayerPart]:
    return [LayerPart(layer, layer + 1 if layer < last else None) for layer in layers]


def test_every_layer_of_a_hybrid_sweep() -> None:
    parts = parts_of(sweep_template(4, (HYBRID,)))
    assert parts == whole(0, 1, 2, 3, last=3)
    assert parts == list(resident_parts({}, 4))


def test_a_cohort_shares_them_with_the_others() -> None:
    template = sweep_template(4, (HYBRID, COHORT))
    assert parts_of(template) == whole(0, 1, 2, 3, last=3)
    both = [op.lanes for op in template.ops if op.part is Part.POST and op.layer == 1]
    assert both == [(0, 1)]


def test_a_pass_beside_the_others_is_its_own() -> None:
    beside = LaneShape(cursor=1, suspends=True, device=False, host=True, beside=2)
    template = sweep_template(4, (HYBRID, beside))
    parts = layer_parts(template)
    alone = [op for op in template.ops if op.part in (Part.POST, Part.PRE) and op.lanes == (1,)]
    assert len(alone) == 2
    assert not any(op.ordinal in parts for op in alone)
    assert parts_of(template) == whole(0, 1, 2, 3, last=3)


MIXED: dict[str, tuple[SweepLayers, dict[int, Home], list[LayerPart]]] = {
    "streamed": (
        SweepLayers(StreamedLayers((1, 2, 3))),
        dict.fromkeys((1, 2, 3), "streamed"),
        [LayerPart(0, None), LayerPart(None, 4), *whole(4, 5, last=5)],
    ),
    "on-the-cpu": (
        SweepLayers(on_cpu=(2,)),
        {2: "cpu"},
        [LayerPart(0, 1), LayerPart(1, None), LayerPart(None, 3), *whole(3, 4, 5, last=5)],
    ),
    "mlps-on-the-cpu": (
        SweepLayers(mlp_on_cpu=(2, 3)),
        {2: "cpu-mlp", 3: "cpu-mlp"},
        [
            *whole(0, 1, last=5), LayerPart(None, 3), LayerPart(None, 4),
            LayerPart(4, 5), LayerPart(5, None),
        ],
    ),
    "streamed-mlps": (
        SweepLayers(StreamedLayers((0, 2, 4), mlps=(0, 2, 4))),
        dict.fromkeys((0, 2, 4), "host-mlp"),
        [
            LayerPart(None, 1), LayerPart(1, 2), LayerPart(None, 3),
            LayerPart(3, 4), LayerPart(None, 5), LayerPart(5, None),
        ],
    ),
    "last-on-the-cpu": (
        SweepLayers(on_cpu=(4, 5)),
        {4: "cpu", 5: "cpu"},
        [*whole(0, 1, 2, last=5), LayerPart(3, None)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MIXED)
def test_beside_layers_that_are_elsewhere_halves_are_left(name: str) -> None:
    layers, homes, expected = MIXED[name]
    assert parts_of(sweep_template(6, (HYBRID,), layers)) == expected
    assert list(resident_parts(homes, 6)) == expected


def test_positions_are_rotated_in_the_first_layer_on_the_accelerator() -> None:
    """Where the CPU has all before it, too."""
    layers = SweepLayers(on_cpu=(0, 1))
    assert LayerPart(None, 2) in layer_parts(sweep_template(4, (HYBRID,), layers)).values()
    assert list(resident_parts({0: "cpu", 1: "cpu"}, 4)) == whole(2, 3, last=3)


def test_sampling_has_none() -> None:
    assert layer_parts(sampling_template(2)) == {}
