"""How busy each resource is in a steady state."""

from types import SimpleNamespace
from typing import cast

from tandem.planner.fluid.virtual_time import SweepTime
from tandem.planner.question import Question
from tandem.planner.utilisation import busy_shares, mean_sweep

SWEEP = SweepTime(10.0, 9.0, 7.0, 5.0, 3.0, 4e9, 1.0)


def question(*, host_only: bool) -> Question:
    """On a host that moves 2 GB/s where all draw from it, and reads 1 by itself."""
    host = SimpleNamespace(pool_bytes_per_s=2e9, memory_bandwidth_bytes_per_s=1e9)
    hardware = SimpleNamespace(host=host)
    return cast(Question, SimpleNamespace(hardware=hardware, host_only=host_only))


def test_every_resource_has_its_own_share() -> None:
    assert dict(busy_shares(question(host_only=False), SWEEP)) == {
        "accelerator": 0.9,
        "host processor": 0.7,
        "link to the accelerator": 0.5,
        "link to the host": 0.3,
        "host memory": 0.2,
        "disk": 0.1,
    }


def test_on_the_host_alone_the_processor_is_what_computes() -> None:
    shares = dict(busy_shares(question(host_only=True), SWEEP))
    assert shares == {"host processor": 0.9, "host memory": 0.2, "disk": 0.1}


def test_a_disk_that_is_not_read_is_left_out() -> None:
    unread = mean_sweep(
        [(0.25, SweepTime(4.0, 2.0, 0, 0, 0, 0)), (0.75, SweepTime(8.0, 2.0, 0, 0, 0, 0))]
    )
    assert (unread.period_s, unread.accelerator_s) == (7.0, 2.0)
    assert "disk" not in dict(busy_shares(question(host_only=False), unread))
