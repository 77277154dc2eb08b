"""Which stages of a sweep may be launched together with the next layer's."""

from tandem.plan.layer_launches import joined_stages
from tandem.plan.program import LaneShape, OpKind, Part, ProgramTemplate, Queue
from tandem.plan.sweep_layers import StreamedLayers, SweepLayers
from tandem.plan.templates import sampling_template, sweep_template

HYBRID = LaneShape(host=True)
COHORT = LaneShape(cursor=1, suspends=True, device=False, host=True)


def layers_of(template: ProgramTemplate) -> list[int]:
    """Layers whose POST is joined, in order."""
    joined = joined_stages(template)
    return [op.layer for op in template.ops if op.queue is Queue.ACCEL and op.ordinal in joined]


def test_every_layer_of_a_hybrid_sweep() -> None:
    assert layers_of(sweep_template(4, (HYBRID,))) == [0, 1, 2, 3]


def test_a_cohort_shares_them_with_the_others() -> None:
    template = sweep_template(4, (HYBRID, COHORT))
    assert layers_of(template) == [0, 1, 2, 3]
    both = [op.lanes for op in template.ops if op.part is Part.POST and op.layer == 1]
    assert both == [(0, 1)]


def test_a_pass_beside_the_others_is_its_own() -> None:
    beside = LaneShape(cursor=1, suspends=True, device=False, host=True, beside=2)
    template = sweep_template(4, (HYBRID, beside))
    joined = joined_stages(template)
    posts = [op for op in template.ops if op.kind is OpKind.STAGE and op.part is Part.POST]
    assert [op.lanes for op in posts if op.ordinal not in joined] == [(1,)]


def test_layers_that_wait_for_weights_are_not_joined() -> None:
    streamed = SweepLayers(StreamedLayers((1, 2, 3), ()))
    assert layers_of(sweep_template(6, (HYBRID,), streamed)) == [4, 5]


def test_layers_on_the_cpu_are_not_joined() -> None:
    # the layer before ends where the CPU begins
    assert layers_of(sweep_template(5, (HYBRID,), SweepLayers(on_cpu=(2,)))) == [0, 3, 4]


def test_sampling_has_none() -> None:
    assert joined_stages(sampling_template(2)) == frozenset()
