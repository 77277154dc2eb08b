"""Programmes that contradict themselves, or only seem to."""

import pytest
from tests.unit.planner.questions import ask

from tandem.planner.footprint import Footprint
from tandem.planner.policies import POLICIES
from tandem.planner.relaxation.ceiling import Ceilings
from tandem.planner.relaxation.prices import Prices
from tandem.planner.relaxation.rows import Range, Rows
from tandem.planner.relaxation.shares import least_shares
from tandem.planner.relaxation.way import Way


@pytest.mark.parametrize("step", [256, 1024])
def test_a_bound_on_time_per_token_that_most_rows_break_leaves_a_ceiling(step: int):
    """From such a basis the solver could not say that rows beyond the bound contradict it."""
    question = ask(
        "llama-2-13b", "a10g", "g5.4xlarge", prompt="2000", generate="100", requests=1000,
        tpot_bound_s=0.2, device_bytes=22_926_258_176, host_bytes=65_498_251_264,
    )  # fmt: skip
    found = Ceilings(question, Footprint(question), POLICIES["auto"], steps=(step,)).ceiling()
    assert 9 < found.tokens_per_s < 10


def test_rows_that_leave_one_point_do_not_contradict_each_other():
    """A request's KV on the host, its prompts read here: the solver called it infeasible where it
    had not presolved.
    """
    question = ask(device_bytes=8 * 10**9, prompt="1500", objective="latency", requests=1)
    prices = Prices(question, Footprint(question))
    way = Way("ride-along", ("resident", "streamed-mlp"), all_on_host=True)
    there, here = (way._replace(reads_here=here) for here in (False, True))
    found = [least_shares(prices, each, Rows(Range(1, 1))) for each in (there, here)]
    assert all(found)
