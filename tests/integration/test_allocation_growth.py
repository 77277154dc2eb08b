"""A scheduler that runs on and on keeps no more memory; `tandem bench engine --part growth` runs
it longer.
"""

import pytest

from tandem.bench.scheduler_growth import GrowthBench, Turnover, kept_blocks

STEPS = 900
BOUND = STEPS // 2
"""Of blocks: half of what one object per step would take."""


@pytest.mark.parametrize("strategy", GrowthBench().strategies)
def test_requests_that_come_and_go_leave_nothing(strategy: str) -> None:
    turnover = Turnover(strategy)
    for _ in range(STEPS):
        turnover.step()
    before = turnover.finished
    assert kept_blocks(turnover, STEPS) < BOUND
    assert turnover.finished - before > 50


def test_what_is_kept_is_seen() -> None:
    turnover, kept = Turnover("gpu-only"), list[object]()
    step = turnover.step

    def leaking() -> None:
        step()
        kept.append(object())

    turnover.step = leaking
    assert kept_blocks(turnover, STEPS) > BOUND
