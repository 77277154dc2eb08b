"""What sweeps do with lent layers is what engines do by the same plan's homes and rules."""

import pytest

from tandem.plan.sweep_layers import SweepChoice
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.fluid.schedule import Schedules

LAYERS = 12
STREAMED = [
    Elsewhere(3),
    Elsewhere(12),
    Elsewhere(9, on_disk=4),
    Elsewhere(7, mlps=True),
    Elsewhere(11, mlps=True, experts=5),
]


@pytest.mark.parametrize("streamed", STREAMED)
@pytest.mark.parametrize("count", [0, 1, 4, LAYERS])
def test_sweeps_follow_the_plan_that_an_engine_is_given(streamed: Elsewhere, count: int) -> None:
    elsewhere = streamed.lending(count)
    choice = SweepChoice.of_plan(elsewhere.placement(LAYERS), elsewhere.rules(LAYERS, 1))
    schedules = Schedules(LAYERS, (0,) * LAYERS)
    for prompts, tokens in ((False, 1), (True, 2)):
        assert elsewhere.sweep(LAYERS, prompts=prompts) == choice.of(tokens)
        assert schedules.layers(elsewhere, prompts=prompts)[0] == choice.of(tokens)
    assert elsewhere.lent == min(count, streamed.may_be_lent)
