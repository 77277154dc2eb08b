"""What a run amounts to, where it can be told by head."""

from collections import Counter
from types import SimpleNamespace
from typing import cast

import pytest

from tandem.planner.fluid.queues import ACCEL, CPU, D2H, DISK, H2D
from tandem.simulator.outcome import Outcome, outcome_of
from tandem.simulator.program_queues import ProgramQueues
from tandem.simulator.record import Record
from tandem.spec.workload import RequestShape

RECORD = Record(
    requests=(RequestShape(10, 4, 0.0), RequestShape(10, 6, 2.0)),
    first_s={"0": 1.0, "1": 4.0},
    finish_s={"0": 4.0, "1": 10.0},
    tokens=Counter({"0": 4, "1": 6}),
    progress=[(0.0, 0), (1.0, 1), (3.0, 3), (5.0, 5), (8.0, 9), (10.0, 10)],
)


def outcome(*, disk_s: float = 0.0, host_only: bool = False) -> Outcome:
    """Of that run, whose last load ended at 12 s, on a host that moves 4 GB/s."""
    busy_s = {ACCEL: 6.0, CPU: 3.0, H2D: 9.0, D2H: 1.2, DISK: disk_s}
    queues = SimpleNamespace(busy_s=busy_s, hidden_s=1.2, now_s=12.0, dram_bytes=24e9)
    return outcome_of(
        RECORD, cast(ProgramQueues, queues), 4e9, 7, 50, 20, ttft_bound_s=1.5, host_only=host_only
    )


def test_rates_are_over_the_run_and_over_its_middle_half() -> None:
    found = outcome()
    assert (found.requests, found.output_tokens) == (2, 10)
    assert (found.preemptions, found.steps, found.skipped_steps) == (7, 50, 20)
    assert (found.duration_s, found.tokens_per_s) == (10.0, 1.0)
    # what was given out from the first moment past 2.5 s to the first past 7.5 s
    assert found.steady_tokens_per_s == pytest.approx((9 - 3) / (8.0 - 3.0))
    assert found.mean_running == pytest.approx((4.0 + 8.0) / 10.0)


def test_latencies_are_from_each_requests_arrival() -> None:
    found = outcome()
    assert found.tpot is not None
    assert found.ttft.mean_s == pytest.approx((1.0 + 2.0) / 2)
    assert found.ttft_kept == 0.5
    assert found.latency.mean_s == pytest.approx((4.0 + 8.0) / 2)
    assert found.tpot.mean_s == pytest.approx((3.0 / 3 + 6.0 / 5) / 2)


def test_each_resource_is_busy_for_its_share_of_all_the_time() -> None:
    found = outcome()
    assert found.busy == pytest.approx(
        {
            "accelerator": 0.5,
            "CPU": 0.25,
            "link to the accelerator": 0.75,
            "link to the host": 0.1,
            "host memory": 0.5,
        }
    )
    assert found.hidden_share == pytest.approx(0.4)  # of the CPU's time
    assert outcome(disk_s=3.0).busy["disk"] == 0.25
    assert outcome(host_only=True).busy == {"CPU": 0.5, "host memory": 0.5}
