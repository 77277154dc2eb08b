"""How long sweeps take, against sums by hand."""

import pytest

from tandem.cost.sweep_time import LayerTimes, Way, sweep_s

TIMES = LayerTimes(
    accelerator_s=1.0, cpu_s=10.0, load_s=20.0, queries_s=0.5, turn_s=0.25, host_read_s=2.0
)


@pytest.mark.parametrize(
    ("ways", "expected_s"),
    [
        (["resident"] * 4, 4.0),
        (["resident", "cpu", "cpu", "resident"], 2 + 2 * 10.5 + 0.25),
        (["cpu", "resident", "cpu"], 2 * 10.75 + 1),
        (["loaded", "loaded", "resident"], 3.0),  # they stay in their slots
        (["loaded"] * 4, 4 * 20.0),
        (["loaded", "cpu"] * 4, 4 * 20.0),  # loads cover the CPU's work
        (["loaded", "cpu", "cpu"] * 4, 8 * 10.5 + 4 * 0.25 + 4),  # the CPU's work covers loads
    ],
)
def test_a_chain_beside_which_loads_run(ways: list[Way], expected_s: float) -> None:
    assert sweep_s(ways, 2, TIMES) == pytest.approx(expected_s, rel=0.03)


def test_link_and_cores_share_the_memory_of_the_host() -> None:
    slow = LayerTimes(1.0, 10.0, 20.0, 0.0, 0.0, host_read_s=9.0)
    ways: list[Way] = ["loaded", "cpu", "cpu"] * 4
    assert sweep_s(ways, 2, slow) == pytest.approx(12 * 9.0)
