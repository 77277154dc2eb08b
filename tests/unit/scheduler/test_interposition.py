"""Where cohorts take part in sweeps, and that the sweeps' programs are complete."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.plan.interposition import Visit, plan_visits, token_sweeps
from tandem.plan.program import LaneShape
from tandem.plan.sweep_layers import SweepLayers
from tandem.plan.templates import sweep_template
from tandem.plan.validator import Placed, validate, validate_sequence
from tandem.plan.weights import StreamedLayers

layers = st.integers(1, 12)
passes = st.integers(0, 14)


def test_without_passes_a_cohort_joins_where_it_stands() -> None:
    assert plan_visits(3, 8, 0, entered=False) == (Visit(3, 3),)
    assert plan_visits(0, 8, 0, entered=True) == ()


def test_with_a_pass_beside_every_layer_it_is_in_counter_phase() -> None:
    entered = plan_visits(0, 4, 4, entered=True)
    assert entered == (Visit(0, 1), Visit(1, 2), Visit(2, 3))
    assert plan_visits(3, 4, 4, entered=False) == (Visit(3, 0),)


def test_a_few_passes_are_spread_over_the_sweep() -> None:
    assert plan_visits(1, 8, 2, entered=False) == (Visit(1, 1), Visit(2, 2 + 4))
    assert plan_visits(6, 8, 2, entered=False) == (Visit(6, 2), Visit(7, 6))


def test_stages_are_shared_where_the_others_meet_the_cohort() -> None:
    assert plan_visits(5, 8, 2, entered=False) == (Visit(5, 2), Visit(6, 6))
    assert plan_visits(4, 8, 1, entered=False) == (Visit(4, 4),)


@given(layers, passes, st.data())
def test_visits_advance_one_layer_at_a_time(count: int, most: int, data: st.DataObject) -> None:
    cursor = data.draw(st.integers(0, count - 1))
    entered = cursor == 0 and data.draw(st.booleans())
    visits = plan_visits(cursor, count, most, entered=entered)
    assert [visit.layer for visit in visits] == list(range(cursor, cursor + len(visits)))
    assert all(a.at < b.at for a, b in itertools.pairwise(visits))
    assert sum(visit.layer != visit.at for visit in visits) <= most
    assert all(0 <= visit.layer < count and 0 <= visit.at < count for visit in visits)
    if not entered:
        assert visits, "a cohort gets on in every sweep"


@given(layers, passes)
def test_a_token_leaves_every_layer_behind_once(count: int, most: int) -> None:
    sweeps = token_sweeps(count, most)
    assert [visit.layer for visits in sweeps for visit in visits] == list(range(count))
    assert all(sweeps[1:]), "a cohort gets on in every sweep but perhaps its first"


@given(layers, passes, st.booleans())
def test_the_sweeps_of_a_token_are_complete_programs(count: int, most: int, main: bool) -> None:
    programs: list[Placed] = []
    for number, visits in enumerate(token_sweeps(count, most)):
        shapes = [LaneShape(device=True, host=True)] if main else []
        before = None
        if number == 0:
            before = len(shapes)
            shapes.append(LaneShape(suspends=True, host=True))
        for layer, at in visits:
            beside = None if layer == at else at
            shapes.append(
                LaneShape(
                    layer, suspends=True, host=True, guarded=main, beside=beside, after=before
                )
            )
            before = len(shapes) - 1
        template = sweep_template(count, tuple(shapes))
        validate(template)
        keys = tuple(0 if main and i == 0 else 7 for i in range(len(shapes)))
        programs.append(Placed(template, keys))
    validate_sequence(programs)


def test_more_passes_take_fewer_sweeps() -> None:
    sweeps = [len(token_sweeps(32, most)) for most in (0, 1, 3, 7, 15, 32)]
    assert sweeps[0] == 33
    assert sweeps[-1] == 2
    assert sweeps == sorted(sweeps, reverse=True)


def test_passes_need_all_layers_on_the_accelerator() -> None:
    lane = LaneShape(cursor=0, suspends=True, host=True, beside=1)
    with pytest.raises(ValueError, match="all layers on the accelerator"):
        sweep_template(4, (LaneShape(), lane), SweepLayers(StreamedLayers((0, 1))))
