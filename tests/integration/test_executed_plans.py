"""The chosen plan against each policy's, executed on the paced emulator under truths held out.

In virtual time, with a host that takes the times of its profile: what differs between prediction
and execution are the accelerator's truth, which only probes have seen, and what the scheduler does.
"""

import pytest
from tests.support.paced_cells import VirtualCell, virtual_cell

from tandem.bench.online.cell import Load, make_cell
from tandem.bench.online.simulated import steady_tokens_per_s
from tandem.runtime.paced.perturbed_rates import Perturbation

POLICIES = (
    "auto", "gpu-only", "simple", "symmetric", "fastdecode", "ride-along", "rendezvous",
    "asymmetric", "neo",
)  # fmt: skip
CASES = [
    ("small", "llama-3.1-8b", Load(1, 900), 1),
    ("rtx4090-scaled", "llama-2-7b", Load(1, 600), 2),
    ("t4-scaled", "llama-2-7b", Load(1, 400), 3),
]


def make(case: tuple[str, str, Load, int]) -> VirtualCell:
    hardware, model, load, seed = case
    truth = Perturbation(seed, terms=0.3, tile_rows=64, jitter=0.02)
    return virtual_cell(make_cell(hardware, model, 8, load, truth))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}, {case[1]}")
def test_auto_is_at_least_as_good_as_each_policy_predicted_and_executed(
    case: tuple[str, str, Load, int],
) -> None:
    cell = make(case)
    planned = {each.policy: each for each in cell.planned(*POLICIES) if each.plan is not None}
    plans = {each.plan: each for each in planned.values()}
    executed = {plan: cell.executed(each).tokens_per_s for plan, each in plans.items()}
    predicted = {
        name: each.option.tokens_per_s for name, each in planned.items() if each.option is not None
    }
    assert len(plans) >= 3  # policies differ here, or nothing is tested
    auto = planned["auto"].plan
    assert auto is not None
    # knows the profile only, and takes every step as the engine does
    simulated = steady_tokens_per_s(planned["auto"], cell.cell.load, 1.0)
    assert simulated == pytest.approx(executed[auto], rel=0.12)
    for name, each in planned.items():
        assert each.plan is not None
        assert predicted["auto"] >= 0.99 * predicted[name]
        assert executed[auto] >= 0.97 * executed[each.plan], name
        assert each.option is not None
        prediction, candidate = each.option.prediction, each.option.candidate
        off = 0.12
        if candidate.streamed and candidate.host_rows:
            # the emulator has the CPU wait for all bytes that are loaded meanwhile (ADR 0008),
            # plans for those that find no room in the memory's rate; the more, the more requests
            # of the host's really run
            off = 0.33
        elif candidate.passes:
            off = 0.15  # predictions of passes do not all hold, for which `auto` leaves them out
        steady = prediction.rates.tokens_per_s
        assert -0.12 <= steady / executed[each.plan] - 1 <= off, name
