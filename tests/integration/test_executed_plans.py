"""The chosen plan against each policy's, executed on the paced emulator under truths held out.

In virtual time, with a host that takes the times of its profile: what differs between prediction
and execution are the accelerator's truth, which only probes have seen, and what the scheduler does.
"""

import pytest
from tests.support.paced_cells import VirtualCell, virtual_cell
from tests.unit.planner.questions import ask

from tandem.bench.online.cell import Load, make_cell
from tandem.bench.online.plans import plan_policies
from tandem.bench.online.simulated import steady_tokens_per_s
from tandem.planner.policies import POLICIES
from tandem.runtime.paced.perturbed_rates import Perturbation

_NOISE = 0.03  # windows are a few tokens of each request: the next is as far off
CASES = [
    ("small", "llama-3.1-8b", Load(1, 900), 1),
    ("rtx4090-scaled", "llama-2-7b", Load(1, 600), 2),
    ("t4-scaled", "llama-2-7b", Load(1, 400), 3),
]


def make(case: tuple[str, str, Load, int]) -> VirtualCell:
    hardware, model, load, seed = case
    truth = Perturbation(seed, terms=0.3, tile_rows=64, jitter=0.02)
    return virtual_cell(make_cell(hardware, model, 4, load, truth))


@pytest.mark.slow
@pytest.mark.timeout(600)  # half a minute alone, every policy executed
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}, {case[1]}")
def test_auto_is_at_least_as_good_as_each_policy_predicted_and_executed(
    case: tuple[str, str, Load, int],
) -> None:
    cell = make(case)
    every = cell.planned(*POLICIES)
    planned = {each.policy: each for each in every if each.plan is not None}
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
        assert executed[auto] >= (1 - _NOISE) * executed[each.plan], name
        assert each.option is not None
        steady = each.option.prediction.rates.tokens_per_s
        assert steady == pytest.approx(executed[each.plan], rel=0.12), name


def test_auto_has_passes_where_they_are_best_and_a_scheduler_makes_as_much_of_them() -> None:
    """All layers of OPT-6.7B, whose host holds so few requests that those that advance by a layer
    per sweep would not use its cores.
    """
    load = Load(500, 300)
    lengths = {"prompt": "450-550", "generate": "270-330", "requests": 50_000}
    question = ask("opt-6.7b", "t4", "g4dn.4xlarge", **lengths)
    made: dict[str, float] = {}
    for each in plan_policies(question, ("auto", "neo", "rendezvous", "ride-along", "symmetric")):
        assert each.option is not None
        made[each.policy] = steady_tokens_per_s(each, load, 1.0)
        if each.policy == "auto":
            assert each.option.candidate.strategy == "asymmetric"
        predicted = each.option.prediction.rates.tokens_per_s
        assert predicted == pytest.approx(made[each.policy], rel=0.06), each.policy
    assert made["auto"] > 1.15 * max(made[name] for name in made if name != "auto")
