"""What preempted requests' ways back come to in virtual time."""

from dataclasses import replace

import pytest
from tests.unit.simulator.setups import CASES, planned

from tandem.simulator.build import Planned
from tandem.simulator.outcome import Outcome
from tandem.simulator.simulate import recorded
from tandem.spec.config import PreemptionMode
from tandem.spec.workload import RequestShape, Workload

PROMPT, GENERATE = 1900, 400
BLOCKS = 66
"""Of two such requests' 72: the second gives its KV up when both have grown."""


def two_at_a_time(link: float) -> Planned:
    """On an A10G whose link has a share of its rate."""
    found = planned(CASES["gpu-only"], str(PROMPT), str(GENERATE), 2)
    hardware = found.question.hardware
    slower = replace(
        hardware.link,
        h2d_bytes_per_s=link * hardware.link.h2d_bytes_per_s,
        d2h_bytes_per_s=link * hardware.link.d2h_bytes_per_s,
    )
    question = replace(found.question, hardware=replace(hardware, link=slower))
    plan = replace(found.plan, device_blocks=BLOCKS, max_num_seqs=2)
    return Planned(question, found.option, plan)


def pairs(gap_s: float) -> Workload:
    """Of requests, so far apart."""
    shapes = (RequestShape(PROMPT, GENERATE, gap_s * (i // 2)) for i in range(6))
    return Workload("pairs", tuple(shapes))


def served(plan: Planned, workload: Workload, mode: PreemptionMode) -> tuple[float, Outcome]:
    """Seconds from all requests' arrivals to their ends, in the mean."""
    record, outcome = recorded(plan, workload, preemption=mode)
    waited_s = [
        record.finish_s[str(i)] - each.arrival_s for i, each in enumerate(workload.requests)
    ]
    return sum(waited_s) / len(waited_s), outcome


@pytest.mark.parametrize("mode", ["mix", "auto"])
def test_alone_a_request_is_back_sooner_in_two_ways_than_in_either(mode: PreemptionMode) -> None:
    plan, workload = two_at_a_time(link=0.1), pairs(gap_s=60.0)  # when the last have long ended
    both_s, outcome = served(plan, workload, mode)
    assert outcome.preemptions == 3
    assert both_s < min(served(plan, workload, way)[0] for way in ("recompute", "swap"))


def test_where_prompts_wait_auto_only_copies() -> None:
    plan, workload = two_at_a_time(link=1.0), pairs(gap_s=0.0)
    copied_s, outcome = served(plan, workload, "swap")
    assert outcome.preemptions > 1
    assert served(plan, workload, "auto")[0] == pytest.approx(copied_s, rel=2e-3)
