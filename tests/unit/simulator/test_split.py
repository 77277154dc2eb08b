"""Requests that are too long for the accelerator, which the plan splits over both tiers."""

from dataclasses import replace

from tests.unit.simulator.setups import Case, planned, serve, workload


def test_requests_have_the_share_of_the_accelerator_that_is_planned() -> None:
    """One of 60 blocks where there are 40 on the accelerator: the host attends to a third of it,
    and not to two thirds.
    """
    plan = planned(Case("ride-along", 0, 1, device_blocks=40), "3800", "40", 2)
    requests = workload("3800", "40", 1)

    def time_s(split_blocks: int) -> float:
        online = replace(plan.plan, kv_placement="auto", max_num_seqs=2, split_blocks=split_blocks)
        return serve(replace(plan, plan=online), requests).outcome.duration_s

    usual, planned_s = time_s(0), time_s(39)
    assert time_s(20) == usual
    assert planned_s < 0.8 * usual
