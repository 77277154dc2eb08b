"""Programmes that contradict themselves, begun where others ended that do not."""

import pytest
from tests.unit.planner.questions import ask

from tandem.planner.footprint import Footprint
from tandem.planner.policies import POLICIES
from tandem.planner.relaxation.ceiling import Ceilings


@pytest.mark.parametrize("step", [256, 1024])
def test_a_bound_on_time_per_token_that_most_rows_break_leaves_a_ceiling(step: int):
    """From such a basis the solver could not say that rows beyond the bound contradict it."""
    question = ask(
        "llama-2-13b", "a10g", "g5.4xlarge", prompt="2000", generate="100", requests=1000,
        tpot_bound_s=0.2, device_bytes=22_926_258_176, host_bytes=65_498_251_264,
    )  # fmt: skip
    found = Ceilings(question, Footprint(question), POLICIES["auto"], steps=(step,)).ceiling()
    assert 9 < found.tokens_per_s < 12
