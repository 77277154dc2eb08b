"""The suite of planning's times, of a host alone, whose plan takes the least."""

import pytest

from tandem.bench.plan_time import BOUND_S, PlanTimeBench, run_plan_time, time_plan

SMALL = "opt-1.3b --accelerator none --host desktop-ddr5 --requests 4"


def test_the_plan_comes_before_the_end() -> None:
    said: list[str] = []
    rows = run_plan_time(PlanTimeBench((("small", SMALL),), rounds=1), said.append)
    assert said == ["small: 0 of 1", "small: 1 of 1"]
    found = {row.metric: row for row in rows}
    assert {row.case for row in rows} == {"small"}
    assert 0 < found["time to the plan"].value < found["time to the end"].value
    # the process's own until the plan, of one thread, counted in hundredths of a second
    own_s = found["processor time to the plan"].value
    assert 0 < own_s <= found["processor time"].value + 0.02
    assert own_s <= found["time to the plan"].value + 0.02
    bounds = [found[metric].bound for metric in ("time to the plan", "time to the end")]
    assert bounds == [BOUND_S, BOUND_S]


def test_a_refused_question_is_no_time() -> None:
    with pytest.raises(RuntimeError, match="unheard-of"):
        time_plan(["opt-1.3b", "--accelerator", "unheard-of"])
